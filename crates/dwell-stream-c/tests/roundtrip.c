/* Sends a text through a sender and a receiver, over a transport that is full half of the time, and
 * compares. Then a stream that is cut off, and a configuration that is not possible. */
#include <stdio.h>
#include <string.h>

#include "dwell_stream.h"

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition); \
            return 1;                                                         \
        }                                                                     \
    } while (0)

static uint64_t ticks;
static uint64_t now_ns(void) { return ticks += 1000; }

static char text[300000], got[300000];

static int transfer(const char *strategy) {
    char why[200];
    dwell_sender *sender = dwell_sender_new(strategy, NULL, 0, why, sizeof why);
    CHECK(sender != NULL);
    dwell_receiver *receiver = dwell_receiver_new();
    size_t given = 0, received = 0, turn = 0;
    while (!dwell_sender_is_finished(sender)) {
        given += dwell_sender_accept(sender, (const uint8_t *)text + given, sizeof text - given);
        if (given == sizeof text) dwell_sender_finish(sender);
        size_t len = 0, limit = (turn++ % 2) ? 1000 : 100000;
        const uint8_t *wire = dwell_sender_wire(sender, now_ns(), &len);
        ptrdiff_t taken = dwell_receiver_feed(receiver, wire, len < limit ? len : limit);
        CHECK(taken >= 0);
        CHECK(dwell_sender_wrote(sender, now_ns(), (size_t)taken) == 0);
        if ((size_t)taken < len) dwell_sender_blocked(sender, now_ns());
        else dwell_sender_unblocked(sender);
        uint32_t wished = dwell_sender_not_sent_len(sender);
        CHECK(wished >= 128 << 10);
        dwell_sender_transport_holds(sender, wished);
        dwell_sender_compress(sender, now_ns);
        size_t have = 0;
        const uint8_t *data = dwell_receiver_data(receiver, &have);
        CHECK(received + have <= sizeof got);
        memcpy(got + received, data, have);
        received += have;
        CHECK(dwell_receiver_consume(receiver, have) == 0);
        CHECK(dwell_receiver_consume(receiver, 1) == DWELL_MISUSE);
    }
    CHECK(dwell_receiver_is_finished(receiver) && dwell_receiver_end(receiver) == 0);
    CHECK(received == sizeof text && memcmp(text, got, sizeof text) == 0);
    CHECK(dwell_sender_accepted_bytes(sender) == sizeof text);
    CHECK(dwell_sender_wire_bytes(sender) < sizeof text);
    CHECK(dwell_receiver_feed(receiver, (const uint8_t *)"x", 1) == DWELL_DAMAGED);
    CHECK(dwell_receiver_why(receiver, why, sizeof why) > 0 && strstr(why, "after its end"));
    dwell_sender_free(sender);
    dwell_receiver_free(receiver);
    return 0;
}

/* Moves what a sender has to a receiver, which takes all. */
static int moved(dwell_sender *sender, dwell_receiver *receiver) {
    size_t len = 0;
    do {
        const uint8_t *bytes = dwell_sender_wire(sender, now_ns(), &len);
        if (len > 0) {
            CHECK(dwell_receiver_feed(receiver, bytes, len) == (ptrdiff_t)len);
            dwell_sender_wrote(sender, now_ns(), len);
            size_t got = 0;
            dwell_receiver_data(receiver, &got);
            CHECK(dwell_receiver_consume(receiver, got) == 0);
        }
    } while (len > 0 || dwell_sender_compress(sender, now_ns) == 1);
    return 0;
}

/* Two directions, of which one gets a context, uses it or not, and drops it. */
static int contexts(void) {
    dwell_config *config = dwell_config_new();
    CHECK(dwell_config_set(config, "may_get_context", "yes", NULL, 0) == 0);
    dwell_sender *there = dwell_sender_with(config, NULL, 0), *back = dwell_sender_with(config, NULL, 0);
    dwell_receiver *receiver = dwell_receiver_new(), *back_receiver = dwell_receiver_new();
    CHECK(!dwell_receiver_grant(receiver, back, 20, 0)); /* Nothing is known of the stream yet. */
    CHECK(dwell_sender_accept(there, (const uint8_t *)text, 10000) == 10000);
    CHECK(moved(there, receiver) == 0);
    for (int round = 0; round < 2; round++) {
        uint64_t memory_max = round == 0 ? UINT64_MAX : 1;
        CHECK(!dwell_receiver_grant(receiver, back, 99, 0));
        CHECK(dwell_receiver_grant(receiver, back, 20, 22));
        CHECK(!dwell_receiver_grant(receiver, back, 20, 22));
        CHECK(moved(back, back_receiver) == 0);
        CHECK(dwell_sender_get_context(there, back_receiver, now_ns(), memory_max) == (round == 0));
        CHECK(!dwell_sender_get_context(there, back_receiver, now_ns(), memory_max));
        CHECK(dwell_sender_accept(there, (const uint8_t *)text, 10000) == 10000);
        CHECK(moved(there, receiver) == 0);
        CHECK(dwell_receiver_has_granted(receiver) == (round == 0));
        CHECK(!dwell_sender_drop_context(there, now_ns(), UINT64_MAX));
        CHECK(dwell_sender_drop_context(there, now_ns(), 0) == (round == 0));
        CHECK(moved(there, receiver) == 0);
        CHECK(!dwell_receiver_has_granted(receiver));
    }
    CHECK(!dwell_sender_get_context(NULL, NULL, 0, 0) && !dwell_sender_drop_context(NULL, 0, 0));
    CHECK(!dwell_receiver_grant(NULL, NULL, 20, 0) && !dwell_receiver_has_granted(NULL));
    dwell_sender_free(there);
    dwell_sender_free(back);
    dwell_receiver_free(receiver);
    dwell_receiver_free(back_receiver);
    dwell_config_free(config);
    return 0;
}

/* The bytes that a sender writes first over a link that is presumed to carry so much; more than there are if it
 * does not accept them. */
static size_t first_bytes(double rate) {
    dwell_sender *sender = dwell_sender_with(NULL, NULL, 0);
    dwell_sender_expect_bulk(sender);
    dwell_sender_presume_rate(sender, now_ns(), rate, 128 << 10);
    size_t len = 0;
    if (dwell_sender_accept(sender, (const uint8_t *)text, 100000) != 100000) return sizeof text;
    dwell_sender_wire(sender, now_ns(), &len);
    if (len == 0 && dwell_sender_compress(sender, now_ns) == 1) dwell_sender_wire(sender, now_ns(), &len);
    /* For ever: that is no sum that runs over. */
    dwell_sender_wrote(sender, now_ns(), len);
    dwell_sender_presume_rate(sender, now_ns(), 1e6, UINT64_MAX);
    dwell_sender_free(sender);
    return len;
}

/* A stream with a window, for a receiver that accepts none, and for one that does. */
static int windows(void) {
    char why[200];
    dwell_config *config = dwell_config_new();
    CHECK(dwell_config_set(config, "model_log", "20", NULL, 0) == 0);
    CHECK(dwell_sender_with(config, why, sizeof why) == NULL && strstr(why, "beside a window"));
    CHECK(dwell_config_set(config, "window_log", "15", NULL, 0) == 0);
    for (int accepts = 0; accepts < 2; accepts++) {
        if (accepts) {
            CHECK(dwell_config_set(config, "limits.window_log", "15", NULL, 0) == 0);
            CHECK(dwell_config_set(config, "limits.model_log", "20", NULL, 0) == 0);
        }
        dwell_sender *sender = dwell_sender_with(config, why, sizeof why);
        dwell_receiver *receiver = dwell_receiver_with(config);
        CHECK(sender != NULL && receiver != NULL);
        dwell_sender_finish(sender);
        size_t len = 0;
        const uint8_t *wire = dwell_sender_wire(sender, now_ns(), &len);
        ptrdiff_t taken = dwell_receiver_feed(receiver, wire, len);
        CHECK(accepts ? taken == (ptrdiff_t)len : taken == DWELL_DAMAGED);
        dwell_sender_free(sender);
        dwell_receiver_free(receiver);
    }
    dwell_config_free(config);
    return 0;
}

/* Limits that no receiver can have: they were taken. */
static int wrong_limits(void) {
    char why[200];
    dwell_config *config = dwell_config_new();
    CHECK(dwell_config_set(config, "limits.reorder", "200", why, sizeof why) == DWELL_MISUSE);
    CHECK(strstr(why, "at most 64"));
    CHECK(dwell_config_set(config, "limits.block_len", "5GiB", why, sizeof why) == DWELL_MISUSE);
    CHECK(strstr(why, "4096 to 65536"));
    CHECK(dwell_config_set(config, "limits.window_log", "24", NULL, 0) == DWELL_MISUSE);
    dwell_config_free(config);
    return 0;
}

int main(void) {
    for (size_t i = 0; i < sizeof text; i++) text[i] = "dwell time "[i % 11] + (i % 997 == 0);
    CHECK(transfer(NULL) == 0);
    CHECK(transfer("all") == 0);
    CHECK(transfer("tcpcomp") == 0);
    CHECK(windows() == 0);
    CHECK(contexts() == 0);
    CHECK(wrong_limits() == 0);
    CHECK(first_bytes(0) > 60000 && first_bytes(0.0 / 0.0) > 60000);
    CHECK(first_bytes(1e6) > 0 && first_bytes(1e6) < 20000);

    dwell_receiver *receiver = dwell_receiver_new();
    CHECK(dwell_receiver_feed(receiver, (const uint8_t *)"dws", 3) == 3);
    CHECK(dwell_receiver_end(receiver) == DWELL_TRUNCATED);
    dwell_receiver_free(receiver);
    CHECK(dwell_receiver_feed(NULL, (const uint8_t *)"dws", 3) == DWELL_MISUSE);

    size_t none = 7;
    CHECK(dwell_sender_wire(NULL, now_ns(), &none) == NULL && none == 0);
    none = 7;
    CHECK(dwell_receiver_data(NULL, &none) == NULL && none == 0);

    char why[60];
    CHECK(dwell_sender_new("zip", NULL, 0, why, sizeof why) == NULL);
    CHECK(strstr(why, "\"zip\" is no strategy") && strlen(why) < sizeof why);
    CHECK(dwell_sender_new("all", "zstd:99", 0, NULL, 0) == NULL);

    CHECK(strcmp(dwell_stream_version(), DWELL_STREAM_VERSION) == 0);
    dwell_config *config = dwell_config_new();
    CHECK(dwell_config_set(config, "objective", "bytes", NULL, 0) == 0);
    CHECK(dwell_config_set(config, "buffer_len", "128KiB", why, sizeof why) == 0);
    CHECK(dwell_config_set(config, "bufer_len", "1", why, sizeof why) == DWELL_MISUSE);
    CHECK(strstr(why, "no setting \"bufer_len\""));
    CHECK(dwell_config_set(NULL, "mss", "1", why, sizeof why) == DWELL_MISUSE);
    CHECK(dwell_config_set(config, "mss", NULL, NULL, 0) == DWELL_MISUSE);
    dwell_sender *sender = dwell_sender_with(config, why, sizeof why);
    CHECK(sender != NULL && dwell_sender_room(sender) == 128 << 10);
    dwell_link_report report = {.window_rate = 1e6, .round_trip_ns = 1000000};
    dwell_sender_reported(sender, now_ns(), &report);
    dwell_sender_reported(sender, now_ns(), NULL);
    CHECK(dwell_sender_accept(sender, (const uint8_t *)text, 1000) == 1000);
    CHECK(dwell_sender_held(sender) == 1000 && dwell_sender_held(NULL) == 0);
    dwell_sender_free(sender);
    CHECK(dwell_config_set(config, "block_len", "5000", why, sizeof why) == 0);
    CHECK(dwell_sender_with(config, why, sizeof why) == NULL && strstr(why, "power of two"));
    CHECK((sender = dwell_sender_with(NULL, NULL, 0)) != NULL);
    dwell_sender_free(sender);
    CHECK(dwell_config_set(config, "limits.history", "no", NULL, 0) == 0);
    receiver = dwell_receiver_with(config);
    CHECK(receiver != NULL);
    dwell_receiver_free(receiver);
    CHECK((receiver = dwell_receiver_with(NULL)) != NULL);
    dwell_receiver_free(receiver);
    dwell_config_free(config);
    dwell_config_free(NULL);

    dwell_sender_unblocked(NULL);
    dwell_sender_expect_bulk(NULL);
    dwell_sender_presume_rate(NULL, now_ns(), 1e6, 1);
    dwell_sender_transport_holds(NULL, 1);
    CHECK(dwell_sender_not_sent_len(NULL) == 0);
    dwell_sender_free(NULL);
    puts("all is well");
    return 0;
}
