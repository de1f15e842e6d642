// One bottleneck in ns-3: flows of TCP, or of packets that come by chance, through a queue discipline.
// Words are name=value; prints one line of numbers. Only for the comparison with the simulator.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <cstdio>
#include <fstream>

using namespace ns3;

// A packet of TCP has 1500 bytes on the link: 1446 of data, 52 of TCP and IP with time stamps, 2 of PPP.
static const uint32_t WIRE = 1500, DATA = 1446;

static double from, until;
static double delaySum, delayMax;
static uint64_t delayCount, received, drops, marks;
static std::vector<uint64_t> byFlow;

static bool InWindow() {
    double now = Simulator::Now().GetSeconds();
    return now >= from && now < until;
}

static void Sojourn(Time t) {
    if (InWindow()) {
        delaySum += t.GetSeconds();
        delayMax = std::max(delayMax, t.GetSeconds());
        delayCount++;
    }
}
static void Drop(Ptr<const QueueDiscItem>) { drops += InWindow(); }
static void Mark(Ptr<const QueueDiscItem>, const char *) { marks += InWindow(); }
static void Rx(uint32_t flow, Ptr<const Packet> p, const Address &) {
    if (InWindow()) {
        received += p->GetSize();
        byFlow[flow] += p->GetSize();
    }
}

// Packets of one size at exponential distances.
class Poisson : public Application {
  public:
    Poisson(Address to, double rate, uint32_t bytes) : m_to(to), m_bytes(bytes) {
        m_gap = CreateObject<ExponentialRandomVariable>();
        m_gap->SetAttribute("Mean", DoubleValue(bytes * 8.0 / rate));
    }

  private:
    void StartApplication() override {
        m_socket = Socket::CreateSocket(GetNode(), UdpSocketFactory::GetTypeId());
        m_socket->Bind();
        m_socket->Connect(m_to);
        Next();
    }
    void Send() {
        m_socket->Send(Create<Packet>(m_bytes - 30)); // 28 of UDP and IP, 2 of PPP
        Next();
    }
    void Next() { Simulator::Schedule(Seconds(m_gap->GetValue()), &Poisson::Send, this); }
    Address m_to;
    uint32_t m_bytes;
    Ptr<Socket> m_socket;
    Ptr<ExponentialRandomVariable> m_gap;
};

// ns-3.37's CUBIC leaves slow start only with the acknowledgement that finds the window above the threshold, and grows by
// all that an acknowledgement covers: one that fills the gap after a timeout may take the window from 47 to 811 segments
// with a threshold of 120. This one grows to the threshold, as Linux does.
class TcpCubicBounded : public TcpCubic {
  public:
    static TypeId GetTypeId() {
        static TypeId id = TypeId("ns3::TcpCubicBounded").SetParent<TcpCubic>().AddConstructor<TcpCubicBounded>();
        return id;
    }
    void IncreaseWindow(Ptr<TcpSocketState> state, uint32_t segments) override {
        const uint32_t window = state->m_cWnd, threshold = state->m_ssThresh, size = state->m_segmentSize;
        if (window < threshold) {
            segments = std::min(segments, (threshold - window + size - 1) / size);
        }
        TcpCubic::IncreaseWindow(state, segments);
    }
    Ptr<TcpCongestionOps> Fork() override { return CopyObject<TcpCubicBounded>(this); }
};
NS_OBJECT_ENSURE_REGISTERED(TcpCubicBounded);

int main(int argc, char **argv) {
    std::string queue = "fifo", tcp = "NewReno";
    uint32_t flows = 4, limit = 100, seed = 1, bytes = 1500;
    double rate = 10e6, rtt = 0.04, poisson = 0, loss = 0;
    bool ecn = false;
    from = 10, until = 60;
    CommandLine cmd;
    cmd.AddValue("queue", "fifo, codel, fq_codel, pie", queue);
    cmd.AddValue("tcp", "NewReno, Cubic, CubicBounded, Bbr", tcp);
    cmd.AddValue("flows", "number of flows", flows);
    cmd.AddValue("limit", "packets of the queue", limit);
    cmd.AddValue("seed", "run number", seed);
    cmd.AddValue("rate", "of the bottleneck, bit/s", rate);
    cmd.AddValue("rtt", "without queues, s", rtt);
    cmd.AddValue("poisson", "bit/s of packets by chance, in place of TCP", poisson);
    cmd.AddValue("bytes", "of such a packet", bytes);
    cmd.AddValue("loss", "probability of losing a packet behind the queue", loss);
    cmd.AddValue("ecn", "marks in place of drops", ecn);
    cmd.AddValue("from", "s", from);
    cmd.AddValue("until", "s", until);
    cmd.Parse(argc, argv);
    RngSeedManager::SetSeed(1);
    RngSeedManager::SetRun(seed);
    byFlow.resize(flows);

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::Tcp" + tcp));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                       TypeIdValue(TypeId::LookupByName("ns3::TcpPrrRecovery")));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(DATA));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 25));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 25));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(1)));
    Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue(ecn ? "On" : "Off"));
    if (queue == "codel") {
        Config::SetDefault("ns3::CoDelQueueDisc::UseEcn", BooleanValue(ecn));
        Config::SetDefault("ns3::CoDelQueueDisc::MinBytes", UintegerValue(WIRE));
    }

    Ptr<Node> left = CreateObject<Node>(), right = CreateObject<Node>();
    NodeContainer senders, receivers;
    senders.Create(flows);
    receivers.Create(flows);
    InternetStackHelper stack;
    stack.Install(NodeContainer(NodeContainer(left, right), senders, receivers));

    // The bottleneck has half of the delay, the access links the rest.
    PointToPointHelper slow, access;
    slow.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(rate))));
    slow.SetChannelAttribute("Delay", TimeValue(Seconds(rtt / 4)));
    slow.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    access.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    access.SetChannelAttribute("Delay", TimeValue(Seconds(rtt / 8)));
    NetDeviceContainer core = slow.Install(left, right);
    if (loss > 0) {
        Ptr<RateErrorModel> errors = CreateObject<RateErrorModel>();
        errors->SetAttribute("ErrorUnit", StringValue("ERROR_UNIT_PACKET"));
        errors->SetAttribute("ErrorRate", DoubleValue(loss));
        core.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
    }
    TrafficControlHelper control;
    const std::string size = std::to_string(limit) + "p";
    if (queue == "fifo") {
        control.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue(size));
    } else if (queue == "codel") {
        control.SetRootQueueDisc("ns3::CoDelQueueDisc", "MaxSize", StringValue(size));
    } else if (queue == "fq_codel") {
        control.SetRootQueueDisc("ns3::FqCoDelQueueDisc", "MaxSize", StringValue(size), "UseEcn", BooleanValue(ecn),
                                 "DropBatchSize", UintegerValue(1));
    } else {
        control.SetRootQueueDisc("ns3::PieQueueDisc", "MaxSize", StringValue(size), "UseEcn", BooleanValue(ecn),
                                 "QueueDelayReference", StringValue("15ms"), "Tupdate", StringValue("15ms"),
                                 "MaxBurstAllowance", StringValue("150ms"), "MeanPktSize", UintegerValue(WIRE),
                                 "UseDequeueRateEstimator", BooleanValue(false), "UseCapDropAdjustment",
                                 BooleanValue(true));
    }
    Ptr<QueueDisc> disc = control.Install(core.Get(0)).Get(0);
    disc->TraceConnectWithoutContext("SojournTime", MakeCallback(&Sojourn));
    disc->TraceConnectWithoutContext("Drop", MakeCallback(&Drop));
    disc->TraceConnectWithoutContext("Mark", MakeCallback(&Mark));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    addresses.Assign(core);

    Ptr<UniformRandomVariable> start = CreateObject<UniformRandomVariable>();
    for (uint32_t n = 0; n < flows; n++) {
        addresses.NewNetwork();
        NetDeviceContainer in = access.Install(senders.Get(n), left);
        addresses.Assign(in);
        addresses.NewNetwork();
        NetDeviceContainer out = access.Install(right, receivers.Get(n));
        Ipv4InterfaceContainer far = addresses.Assign(out);
        const InetSocketAddress to(far.GetAddress(1), 5000);
        const char *factory = poisson > 0 ? "ns3::UdpSocketFactory" : "ns3::TcpSocketFactory";
        PacketSinkHelper sink(factory, InetSocketAddress(Ipv4Address::GetAny(), 5000));
        ApplicationContainer at = sink.Install(receivers.Get(n));
        at.Get(0)->TraceConnectWithoutContext("Rx", MakeBoundCallback(&Rx, n));
        if (poisson > 0) {
            Ptr<Application> source = CreateObject<Poisson>(to, poisson / flows, bytes);
            senders.Get(n)->AddApplication(source);
        } else {
            BulkSendHelper bulk(factory, to);
            bulk.SetAttribute("SendSize", UintegerValue(DATA));
            bulk.Install(senders.Get(n)).Start(Seconds(start->GetValue(0, 1)));
        }
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    Simulator::Stop(Seconds(until));
    Simulator::Run();
    const double scale = poisson > 0 ? bytes / (bytes - 30.0) : double(WIRE) / DATA;
    double sum = 0, squares = 0;
    for (uint64_t b : byFlow) {
        sum += b;
        squares += double(b) * b;
    }
    std::printf("%.0f %.6f %.6f %lu %lu %.4f\n", received * 8.0 * scale / (until - from),
                delayCount ? delaySum / delayCount : 0.0, delayMax, drops, marks,
                squares > 0 ? sum * sum / (flows * squares) : 1.0);
    Simulator::Destroy();
    return 0;
}
