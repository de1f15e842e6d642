/* Compressed byte streams for C: the interface of libdwell_stream_c.
 *
 * A sender takes bytes of an application and gives bytes for a reliable, ordered transport; a
 * receiver restores them. Neither reads or writes anything itself. Data are compressed while the transport is busy: report that by
 * dwell_sender_blocked, and call dwell_sender_compress until it returns 0.
 *
 *     while more or not dwell_sender_is_finished(s):
 *         dwell_sender_accept(s, ...), at the end dwell_sender_finish(s)
 *         while (bytes = dwell_sender_wire(s, now(), &len)), len > 0:
 *             n = write(fd, bytes, len)
 *             dwell_sender_wrote(s, now(), n)
 *             if n < len: dwell_sender_blocked(s, now()), break
 *         if all of it was taken: dwell_sender_unblocked(s)
 *         if dwell_sender_compress(s, now) == 0 and blocked: wait until fd is writable
 *
 * examples/socket.c does that with a TCP connection, examples/stream.py with any socket.
 *
 * What the transport takes at once goes as it is, with the default settings. So without dwell_sender_blocked data that
 * fit into the sender's buffer are not compressed, however slow the link is, and nothing says so. A transport
 * whose writes block takes no more from when a write begins until it returns. A thread of its own writes:
 *
 *     copy the bytes of dwell_sender_wire(s, now(), &len)
 *     dwell_sender_wrote(s, now(), len), dwell_sender_blocked(s, now())
 *     write all of the copy to fd
 *     dwell_sender_unblocked(s)
 *
 * and another one calls dwell_sender_accept and dwell_sender_compress during the write; a lock keeps their calls
 * apart. examples/stream.go does that with anything that can be written to.
 *
 * THREADS. The library starts none, and has no state that objects share. An object (a configuration, a sender,
 * a receiver) may be used by one thread at a time, whichever that is: whoever hands it to another thread, or
 * uses it from several, has to see to it that these calls do not overlap. Different objects may be used at the
 * same time. A sender and a receiver of the same connection are different objects. A configuration may
 * be read by several threads at once (dwell_sender_with, dwell_receiver_with) while none changes it. No function
 * waits for anything; dwell_sender_compress and dwell_receiver_feed take the time that a block takes, some
 * milliseconds at most. They may be called after fork(). None may be called by a signal's handler.
 *
 * MEMORY. What a function returns a pointer to belongs to the object, and is valid until the next call with it.
 * What dwell_..._new or _with has made is freed by the dwell_..._free of its kind, once. The library panics at
 * nothing that comes from a transport; if it did, it would end the process, and never unwind into C.
 *
 * Times are nanoseconds of a monotonic clock of the caller's. A null pointer instead of a sender
 * or receiver is answered by 0, a null pointer or DWELL_MISUSE. */
#ifndef DWELL_STREAM_H
#define DWELL_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. Up to 1.0 a change of the second number may change the interface, and then the
 * library has another SONAME. */
#define DWELL_STREAM_VERSION "0.1.0"
/* The version of the library that runs, as "0.1.0". */
const char *dwell_stream_version(void);

typedef struct dwell_config dwell_config;
typedef struct dwell_sender dwell_sender;
typedef struct dwell_receiver dwell_receiver;

/* Results below zero. */
#define DWELL_DAMAGED (-1)   /* the stream cannot be restored; close the transport */
#define DWELL_TRUNCATED (-2) /* the transport ended before the stream did */
#define DWELL_ABORTED (-3)   /* the sender gave the stream up */
#define DWELL_MISUSE (-4)    /* the call does not make sense: a null pointer, too great a length, a setting that is not possible */

/* The settings of senders and receivers, at first the defaults. It can be freed, or changed, once they are made. */
dwell_config *dwell_config_new(void);
void dwell_config_free(dwell_config *config);
/* Changes a setting, and returns 0; or DWELL_MISUSE with the reason in `why` (at most `why_len` bytes with the final
 * zero) if that is not null. Sizes are bytes, or have a unit, as "64KiB"; what is true or false may be "yes", "on" and
 * "1", "no", "off" and "0". Limits that are out of range are refused here, and settings of a sender that are not possible
 * together by dwell_sender_with.
 *
 *   objective            time (a block is compressed if it arrives sooner so) or bytes (always); sets the strategy to hull, with its codecs
 *   strategy             hull, raw, all, switch, mix, mix-2in, mix-2out, tcpcomp, kernel-level, plain; sets the codecs to
 *                        those that it has by default
 *   codecs               names with commas, "lz4,zstd:3"; strategies with one codec have the first
 *   block_len            what is compressed at once: a power of two from 4 to 64 KiB [64KiB]
 *   buffer_len           what waits in a sender at most: two blocks or more [256KiB]
 *   history              true if blocks may refer to the 128 KiB before them, at both ends [true]
 *   idle_history         true if a sender holds these while nothing waits, too [true]
 *   may_get_context      true if the stream may get a running context on the way, in place of its history; for a receiver that
 *                        knows of that [false]. See dwell_receiver_grant
 *   window_log           the binary logarithm of the window of a running context, 15 to 23, to which blocks may refer in place
 *                        of a history; 0 for none [0]. It adds codecs, unless these were set. The receiver has to
 *                        accept it: limits.window_log
 *   model_log            the binary logarithm of the memory of a model (ppm) that this context may be over a thin link, 20 to
 *                        26; 0 for none [0]. It takes a window, and adds codecs, unless these were set. The receiver
 *                        has to accept it: limits.model_log
 *   mixed_models         true if such a model may be of the codec mix, too, which takes both ends about a microsecond for each
 *                        byte; for a receiver that accepts it: limits.mixed_models [false]
 *   mss                  the payload of a segment, for tcpcomp and kernel-level [1448]. Their units are segments only if they
 *                        are written so: see dwell_sender_wire
 *   reorder_max          blocks that may overtake another one, for mix-2out, up to 64 [16]
 *   tcpcomp.target_len, .factor_min, .poor_units, .skip_first, .skip_max, .backoff, .variance_first, .drift,
 *   .process_variance, .measurement_variance         the paper's parameters [its values]
 *   limits.output_len    restored bytes that wait in a receiver before it takes no more, at least 1 [256KiB]
 *   limits.block_len     the longest blocks that a receiver accepts: 4 to 64 KiB [64KiB]
 *   limits.reorder       blocks that may come too early, up to 64 [64]
 *   limits.units         true if streams in units are accepted [true]
 *   limits.history       true if streams whose blocks refer to earlier ones are accepted [true]
 *   limits.window_log    the longest window of a running context that is accepted, 15 to 23; 0 for none [0]. Three times as many
 *                        bytes are held then, and half a megabyte
 *   limits.model_log     the most memory of a model that is accepted in such a context, 20 to 26; 0 for none [0]. So many bytes
 *                        more are held then, and 192 KiB
 *   limits.mixed_models  true if such models may be of the codec mix, which decodes about a megabyte a second [false] */
int dwell_config_set(dwell_config *config, const char *name, const char *value, char *why, size_t why_len);

/* A sender with these settings; the defaults for null. Returns null if they are not possible together, with the
 * reason in `why` if that is not null. */
dwell_sender *dwell_sender_with(const dwell_config *config, char *why, size_t why_len);
/* A sender with the most usual settings. `strategy`: "hull", "raw", "all", "mix" and so on; null for the default. `codec`: for
 * strategies with one, "lz4", "zstd:3", "deflate:6"; null for the default. `block_len`: a power of
 * two from 4096 to 65536; 0 for the default. Returns null if that is not possible, with the reason
 * in `why` (at most `why_len` bytes with the final zero) if that is not null. */
dwell_sender *dwell_sender_new(const char *strategy, const char *codec, size_t block_len,
                               char *why, size_t why_len);
void dwell_sender_free(dwell_sender *sender);
/* Takes as many bytes as there is room for, and returns their number. */
size_t dwell_sender_accept(dwell_sender *sender, const uint8_t *bytes, size_t len);
/* Returns the number of bytes that dwell_sender_accept would take. */
size_t dwell_sender_room(const dwell_sender *sender);
/* Announces the end: there will be no more. */
void dwell_sender_finish(dwell_sender *sender);
/* Drops the data that wait and notifies the receiver that the stream is given up. */
void dwell_sender_abort(dwell_sender *sender);
/* Returns the bytes to write to the transport now; valid until the next call with this sender. With tcpcomp and
 * kernel-level they are one unit. To be a segment of its own it has to be written by one call that marks its end, on Linux
 * send with MSG_EOR: TCP_NODELAY and a send for each do only while none waits, as TCP adds bytes to a segment that does. */
const uint8_t *dwell_sender_wire(dwell_sender *sender, uint64_t now_ns, size_t *len);
/* Notes that the transport has taken `len` of them: 0, or DWELL_MISUSE if there were fewer. */
int dwell_sender_wrote(dwell_sender *sender, uint64_t now_ns, size_t len);
/* Notes that the transport takes no more at present. */
void dwell_sender_blocked(dwell_sender *sender, uint64_t now_ns);
/* Notes that the transport takes bytes again, or has taken all of them: data that could only wait
 * for a better moment while it was busy are now sent or compressed. */
void dwell_sender_unblocked(dwell_sender *sender);
/* Returns the most unsent bytes that the transport should hold, for TCP_NOTSENT_LOWAT: at first
 * half of the buffer, then it follows the link's rate. Call it after dwell_sender_blocked; when it has
 * changed, set it for the transport, and then notify the sender by the other function. */
uint32_t dwell_sender_not_sent_len(const dwell_sender *sender);
void dwell_sender_transport_holds(dwell_sender *sender, uint32_t len);
/* What the transport says of its link; zero is what is not known. Linux has it in TCP_INFO: tcpi_delivery_rate,
 * tcpi_delivery_rate_app_limited (is_least), tcpi_snd_cwnd * tcpi_snd_mss / tcpi_rtt (window_rate), tcpi_min_rtt and
 * tcpi_notsent_bytes + tcpi_unacked * tcpi_snd_mss (pending_bytes). Rates are bytes a second. */
typedef struct dwell_link_report {
    double delivered_rate;
    double window_rate;
    double path_rate; /* what other connections over the same path have found */
    uint64_t round_trip_ns;
    uint64_t pending_bytes;
    uint32_t is_least; /* 1 if delivered_rate is only the least that the link carries */
    uint32_t reserved; /* 0 */
} dwell_link_report;
/* Notes that; call it before dwell_sender_wire when bytes were accepted, not more often than each millisecond.
 * Without it what comes now and then goes as it is, since the rate of a link that is never full is not known. */
void dwell_sender_reported(dwell_sender *sender, uint64_t now_ns, const dwell_link_report *report);
/* For a stream that begins on a link of which nothing is known: it is taken to be full and to carry `rate` bytes a second,
 * and no more until `bytes` were written, so that the first data are compressed, too. Call it before anything is
 * accepted. A rate that is not above zero has no effect. dwell send presumes 12.5e6 for 65536 bytes. */
void dwell_sender_presume_rate(dwell_sender *sender, uint64_t now_ns, double rate, uint64_t bytes);
/* What is accepted has more behind it, until dwell_sender_finish: no block is a message that somebody waits for.
 * With a running context up to 1 MiB may wait then, whatever the buffer's length is. */
void dwell_sender_expect_bulk(dwell_sender *sender);
/* Two streams in opposite directions, both with the setting may_get_context, can get running contexts when they turn out to be
 * long. `back` is the other end of the other direction here: the sender beside a receiver, and the receiver beside a sender.
 *
 * Gets what the other end has granted, as `back` has received it, if it takes no more than `memory_max` bytes, or else without its
 * model, or declines it. Returns true if the sender has got a context. Call it after dwell_receiver_feed of `back`; meanwhile no other thread
 * may use either. */
bool dwell_sender_get_context(dwell_sender *sender, dwell_receiver *back, uint64_t now_ns, uint64_t memory_max);
/* Drops the context if no block has gone on with it for `unused_ns`; then something is to be written. Returns true if it did. */
bool dwell_sender_drop_context(dwell_sender *sender, uint64_t now_ns, uint64_t unused_ns);
/* Returns the bytes that wait in the sender. */
size_t dwell_sender_held(const dwell_sender *sender);
/* Compresses one block if that is of use now: 1, or 0 if not. */
int dwell_sender_compress(dwell_sender *sender, uint64_t (*now_ns)(void));
/* Returns true if the transport has taken the end. */
bool dwell_sender_is_finished(const dwell_sender *sender);
/* Bytes accepted, and bytes taken by the transport. */
uint64_t dwell_sender_accepted_bytes(const dwell_sender *sender);
uint64_t dwell_sender_wire_bytes(const dwell_sender *sender);

/* A receiver with the default limits, and one with these; a configuration for "plain" makes one for that. NULL if
 * there is no such receiver, as of a window beyond its limits. */
dwell_receiver *dwell_receiver_new(void);
dwell_receiver *dwell_receiver_with(const dwell_config *config);
void dwell_receiver_free(dwell_receiver *receiver);
/* Takes bytes of the transport and returns their number, less than `len` while its output is full, and with
 * limits.mixed_models before and behind each block that takes long: feed the rest again. Or a result below zero. */
ptrdiff_t dwell_receiver_feed(dwell_receiver *receiver, const uint8_t *bytes, size_t len);
/* Restored and verified bytes; valid until the next call with this receiver. */
const uint8_t *dwell_receiver_data(const dwell_receiver *receiver, size_t *len);
/* Drops the first `len` of them: 0, or DWELL_MISUSE if there were fewer. */
int dwell_receiver_consume(dwell_receiver *receiver, size_t len);
/* Grants the sender at the other end a running context of a window (a binary logarithm, 15 to 23) and a model (20 to 26; 0 for none),
 * by `back`, by which something is to be written then. Meanwhile no other thread may use either. It may hold three windows, half a megabyte, and the model until it is
 * dropped. Returns false, and does nothing, if it has one, or the streams get none. */
bool dwell_receiver_grant(dwell_receiver *receiver, dwell_sender *back, uint8_t window_log, uint8_t model_log);
/* Returns true if it was granted one that was not dropped since. */
bool dwell_receiver_has_granted(const dwell_receiver *receiver);
/* Returns true if the end was announced and everything before it has come. */
bool dwell_receiver_is_finished(const dwell_receiver *receiver);
/* When the transport has ended: 0 if the stream is complete, or a result below zero. */
int dwell_receiver_end(const dwell_receiver *receiver);
/* The last error of feeding or of the end as a sentence, of at most `len` bytes with the final
 * zero; returns its length. */
size_t dwell_receiver_why(const dwell_receiver *receiver, char *why, size_t len);

#ifdef __cplusplus
}
#endif

#endif
