// The block schemes of Yoshino et al., "Adaptive Online Compressing Schemes Using Flow Information
// on Advanced Relay Nodes", section III, as a queue for ns-2.35. It shares no line with the
// simulator that it checks. Debian's `ns` exports its symbols, so that this is loaded as a library
// (`load libblocks.so Blocks` in a script) and ns-2 need not be built.
//
//   Queue/Blocks    drop-tail as ns-2's, and beside it one CPU. If it is idle and more than
//                   lead_ + block_ units wait, it takes the first block_ packets of the group whose
//                   first raw packet beyond the first lead_ units is nearest to the head, among the
//                   groups with block_ of them there. They keep their places; after time_ seconds the
//                   block stands in that of the first. The link passes over what is in the CPU.
//                   group_ 0: any packets, 1: of one flow, 2: of one egress (fid / edges_ mod edges_).
//   BlockRestorer   restores the packets of a block.
//   BlockReturner   takes what queues further on dropped: a block goes back to the head of its queue
//                   after after_ seconds; other packets are gone.

#include <cmath>
#include <list>
#include <unordered_map>
#include <vector>

#include "connector.h"
#include "flags.h"
#include "ip.h"
#include "packet.h"
#include "queue.h"

class BlockQueue;

namespace {

// The packets behind the first of a block, the sizes before, and where it was made.
struct Block {
    BlockQueue* maker;
    int first_bytes;
    std::vector<Packet*> followers;
};
std::unordered_map<int, Block> blocks;

int uid(Packet* p) { return hdr_cmn::access(p)->uid(); }

}  // namespace

class BlockQueue : public Queue {
public:
    BlockQueue() : block_(1), lead_(5), group_(1), edges_(3), ratio_(1), time_(0) {
        bind("block_", &block_);
        bind("lead_", &lead_);
        bind("group_", &group_);
        bind("edges_", &edges_);
        bind("ratio_", &ratio_);
        bind_time("time_", &time_);
        bind("compressions_", &compressions_);
        bind("returned_", &returned_);
        bind("returning_", &returning_);
        compressions_ = returned_ = returning_ = 0;
    }

    void enque(Packet* p) override {
        if (static_cast<int>(units_.size()) + 1 >= qlim_) {
            drop(p);
            return;
        }
        units_.push_back(Unit{p, Raw, hdr_ip::access(p)->flowid()});
        try_compress();
    }

    Packet* deque() override {
        for (auto at = units_.begin(); at != units_.end(); ++at) {
            if (at->state == Compressing) continue;
            Packet* p = at->packet;
            if (at->returned > 0) returning_ -= at->returned;
            units_.erase(at);
            return p;
        }
        return nullptr;
    }

    // The CPU has done its work.
    void handle(Event*) override {
        auto first = units_.end();
        int bytes = 0;
        Block block{this, 0, {}};
        for (auto at = units_.begin(); at != units_.end();) {
            if (at->state != Compressing) {
                ++at;
                continue;
            }
            int size = hdr_cmn::access(at->packet)->size();
            bytes += size;
            if (first == units_.end()) {
                first = at++;
                block.first_bytes = size;
            } else {
                block.followers.push_back(at->packet);
                at = units_.erase(at);
            }
        }
        first->state = Compressed;
        hdr_cmn::access(first->packet)->size() = static_cast<int>(std::floor(bytes * ratio_ + 1e-6));
        blocks[uid(first->packet)] = block;
        compressions_++;
        busy_ = false;
        go_on();
    }

    // A block that was lost comes back.
    void put_back(Packet* p) {
        int packets = 1 + static_cast<int>(blocks[uid(p)].followers.size());
        if (returning_ + packets > qlim_) {
            discard(p);
            return;
        }
        returned_++;
        returning_ += packets;
        Unit unit{p, Compressed, 0};
        unit.returned = packets;
        units_.push_front(unit);
        go_on();
    }

    static void discard(Packet* p) {
        auto block = blocks.find(uid(p));
        if (block != blocks.end()) {
            for (Packet* follower : block->second.followers) Packet::free(follower);
            blocks.erase(block);
        }
        Packet::free(p);
    }

private:
    enum State { Raw, Compressing, Compressed };
    struct Unit {
        Packet* packet;
        State state;
        int flow;
        int returned = 0;
    };

    int group_of(const Unit& unit) const {
        switch (group_) {
            case 0: return 0;
            case 1: return unit.flow;
            default: return unit.flow / edges_ % edges_;
        }
    }

    void try_compress() {
        if (busy_ || static_cast<int>(units_.size()) <= lead_ + block_) return;
        std::unordered_map<int, int> counts;
        auto edge = std::next(units_.begin(), lead_);
        for (auto at = edge; at != units_.end(); ++at)
            if (at->state == Raw) counts[group_of(*at)]++;
        int group = 0, taken = 0;
        for (auto at = edge; at != units_.end() && taken < block_; ++at) {
            if (at->state != Raw) continue;
            if (taken == 0) {
                group = group_of(*at);
                if (counts[group] < block_) continue;
            } else if (group_of(*at) != group) {
                continue;
            }
            at->state = Compressing;
            taken++;
        }
        if (taken == 0) return;
        busy_ = true;
        Scheduler::instance().schedule(this, &done_, time_);
    }

    void go_on() {
        if (!blocked_) {
            if (Packet* p = deque()) {
                blocked_ = 1;
                target_->recv(p, &qh_);
            }
        }
        try_compress();
    }

    std::list<Unit> units_;
    bool busy_ = false;
    Event done_;
    int block_, lead_, group_, edges_;
    double ratio_, time_;
    int compressions_, returned_, returning_;
};

class BlockRestorer : public Connector {
public:
    void recv(Packet* p, Handler*) override {
        auto found = blocks.find(uid(p));
        if (found == blocks.end()) {
            target_->recv(p, static_cast<Handler*>(nullptr));
            return;
        }
        Block block = found->second;
        blocks.erase(found);
        hdr_cmn::access(p)->size() = block.first_bytes;
        target_->recv(p, static_cast<Handler*>(nullptr));
        for (Packet* follower : block.followers) target_->recv(follower, static_cast<Handler*>(nullptr));
    }
};

class BlockReturner : public Connector {
public:
    BlockReturner() : after_(0.022) { bind_time("after_", &after_); }
    void recv(Packet* p, Handler* = nullptr) override {
        if (blocks.count(uid(p)) == 0) {
            Packet::free(p);
            return;
        }
        Scheduler::instance().schedule(this, p, after_);
    }
    void handle(Event* e) override {
        Packet* p = static_cast<Packet*>(e);
        blocks[uid(p)].maker->put_back(p);
    }

private:
    double after_;
};

static class BlockQueueClass : public TclClass {
public:
    BlockQueueClass() : TclClass("Queue/Blocks") {}
    TclObject* create(int, const char* const*) override { return new BlockQueue; }
} block_queue_class;

static class BlockRestorerClass : public TclClass {
public:
    BlockRestorerClass() : TclClass("BlockRestorer") {}
    TclObject* create(int, const char* const*) override { return new BlockRestorer; }
} block_restorer_class;

static class BlockReturnerClass : public TclClass {
public:
    BlockReturnerClass() : TclClass("BlockReturner") {}
    TclObject* create(int, const char* const*) override { return new BlockReturner; }
} block_returner_class;

// The classes above have registered themselves when this is called.
extern "C" int Blocks_Init(Tcl_Interp*) { return TCL_OK; }
