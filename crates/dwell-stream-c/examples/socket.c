/* Sends a file of any length (or 4 MiB of text) over a TCP connection of loopback, compressed while the socket takes no
 * more, and compares what arrives. The receiver is another process, which reads the file itself.
 *
 *     cc socket.c -o socket $(pkg-config --cflags --libs dwell-stream) && ./socket FILE */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <dwell_stream.h>

#define TEXT_LEN ((size_t)4 << 20)

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* What is sent, piece by piece: a file, or text that is made. */
typedef struct {
    FILE *file;
    size_t made;
} source;

static source open_source(const char *name) {
    source source = {.file = name == NULL ? NULL : fopen(name, "rb")};
    if (name != NULL && source.file == NULL) fail(name);
    return source;
}

/* Returns the length of the next piece, of at most `len` bytes; 0 only at the end. */
static size_t take(source *source, uint8_t *piece, size_t len) {
    if (source->file != NULL) {
        size_t got = fread(piece, 1, len, source->file);
        if (ferror(source->file)) fail("read");
        return got;
    }
    size_t left = TEXT_LEN - source->made;
    if (len > left) len = left;
    for (size_t i = 0; i < len; i++) piece[i] = "compressed while it waits\n"[(source->made + i) % 26];
    source->made += len;
    return len;
}

/* What TCP says of its link. */
static void report(int fd, dwell_sender *sender) {
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) return;
    dwell_link_report link = {
        .delivered_rate = (double)info.tcpi_delivery_rate,
        .is_least = info.tcpi_delivery_rate_app_limited,
        .round_trip_ns = (uint64_t)info.tcpi_min_rtt * 1000,
        .pending_bytes = (uint64_t)info.tcpi_notsent_bytes + (uint64_t)info.tcpi_unacked * info.tcpi_snd_mss,
    };
    if (info.tcpi_rtt > 0) link.window_rate = 1e6 * info.tcpi_snd_cwnd * info.tcpi_snd_mss / info.tcpi_rtt;
    dwell_sender_reported(sender, now_ns(), &link);
}

/* Has the kernel hold no more unsent bytes than that: the rest can still be compressed. */
static void hold(int fd, dwell_sender *sender, uint32_t *held) {
    uint32_t wished = dwell_sender_not_sent_len(sender);
    if (wished == *held) return;
    *held = wished;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, held, sizeof *held) != 0) fail("TCP_NOTSENT_LOWAT");
    dwell_sender_transport_holds(sender, *held);
}

/* Accepts as much as there is room for, and announces the end of the source. */
static void give(dwell_sender *sender, source *source) {
    static uint8_t piece[65536];
    static size_t given = 0, filled = 0;
    for (;;) {
        if (given == filled) {
            if (dwell_sender_room(sender) == 0) return;
            given = 0;
            filled = take(source, piece, sizeof piece);
            if (filled == 0) {
                dwell_sender_finish(sender);
                return;
            }
        }
        size_t accepted = dwell_sender_accept(sender, piece + given, filled - given);
        if (accepted == 0) return;
        given += accepted;
    }
}

static void send_all(int fd, source *source) {
    int one = 1;
    uint32_t held = 0;
    char why[200];
    dwell_config *config = dwell_config_new();
    if (dwell_config_set(config, "buffer_len", "256KiB", why, sizeof why) != 0) {
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    dwell_sender *sender = dwell_sender_with(config, why, sizeof why);
    dwell_config_free(config);
    if (sender == NULL) {
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0) fail("TCP_NODELAY");
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) fail("O_NONBLOCK");
    hold(fd, sender, &held);
    while (!dwell_sender_is_finished(sender)) {
        give(sender, source);
        report(fd, sender);
        bool blocked = false;
        size_t have = 0;
        const uint8_t *wire;
        while (!blocked && (wire = dwell_sender_wire(sender, now_ns(), &have), have > 0)) {
            ssize_t sent = send(fd, wire, have, MSG_NOSIGNAL);
            if (sent < 0 && errno != EAGAIN && errno != EINTR) fail("send");
            if (sent > 0) dwell_sender_wrote(sender, now_ns(), (size_t)sent);
            if (sent < (ssize_t)have) {
                dwell_sender_blocked(sender, now_ns());
                hold(fd, sender, &held);
                blocked = true;
            }
        }
        if (!blocked) dwell_sender_unblocked(sender);
        if (dwell_sender_compress(sender, now_ns) == 0 && blocked) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            if (poll(&wait, 1, -1) < 0 && errno != EINTR) fail("poll");
        }
    }
    shutdown(fd, SHUT_WR);
    fprintf(stderr, "%llu bytes, %llu on the wire\n", (unsigned long long)dwell_sender_accepted_bytes(sender),
            (unsigned long long)dwell_sender_wire_bytes(sender));
    dwell_sender_free(sender);
}

/* Returns true if these bytes come next in the source. */
static bool is_next(source *source, const uint8_t *data, size_t len) {
    uint8_t expected[4096];
    while (len > 0) {
        size_t piece = take(source, expected, len < sizeof expected ? len : sizeof expected);
        if (piece == 0 || memcmp(data, expected, piece) != 0) return false;
        data += piece;
        len -= piece;
    }
    return true;
}

/* The receiver's process: 0 if it got what was sent. */
static int receive(int fd, source *expected) {
    dwell_receiver *receiver = dwell_receiver_new();
    uint8_t buffer[16384], more;
    size_t fed = 0, filled = 0;
    for (;;) {
        ptrdiff_t taken = dwell_receiver_feed(receiver, buffer + fed, filled - fed);
        if (taken < 0) break;
        fed += (size_t)taken;
        size_t len = 0;
        const uint8_t *data = dwell_receiver_data(receiver, &len);
        if (!is_next(expected, data, len)) return 1;
        dwell_receiver_consume(receiver, len);
        if (fed < filled) continue;
        ssize_t have = read(fd, buffer, sizeof buffer);
        if (have <= 0) break;
        fed = 0;
        filled = (size_t)have;
    }
    char why[200] = "";
    if (dwell_receiver_why(receiver, why, sizeof why) > 0) fprintf(stderr, "%s\n", why);
    bool is_whole = dwell_receiver_end(receiver) == 0 && take(expected, &more, 1) == 0;
    dwell_receiver_free(receiver);
    return is_whole ? 0 : 1;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : NULL;
    source source = open_source(name);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, address_len) != 0 || listen(listener, 1) != 0) fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &address_len);
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        /* A forked process reads on where the other one is. */
        source = open_source(name);
        _exit(receive(accept(listener, NULL, NULL), &source));
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, address_len) != 0) fail("connect");
    send_all(fd, &source);
    int status = 1;
    waitpid(child, &status, 0);
    puts(status == 0 ? "it arrived" : "it did not arrive");
    return status == 0 ? 0 : 1;
}
