/* Compressed byte streams for C: the interface of libdwell_stream_c.
 *
 * A sender takes bytes of an application and gives bytes for a reliable, ordered transport; a
 * receiver restores them. Neither reads or writes anything itself, and neither may be used by two
 * threads at once. Data are compressed while the transport is busy: report that by
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

typedef struct dwell_sender dwell_sender;
typedef struct dwell_receiver dwell_receiver;

/* Results below zero. */
#define DWELL_DAMAGED (-1)   /* the stream cannot be restored; close the transport */
#define DWELL_TRUNCATED (-2) /* the transport ended before the stream did */
#define DWELL_ABORTED (-3)   /* the sender gave the stream up */
#define DWELL_MISUSE (-4)    /* the call does not make sense: a null pointer, too great a length */

/* A sender. `strategy`: "hull", "raw", "all", "mix" and so on; null for the default. `codec`: for
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
/* Returns the bytes to write to the transport now; valid until the next call with this sender. */
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
/* Compresses one block if that is of use now: 1, or 0 if not. */
int dwell_sender_compress(dwell_sender *sender, uint64_t (*now_ns)(void));
/* Returns true if the transport has taken the end. */
bool dwell_sender_is_finished(const dwell_sender *sender);
/* Bytes accepted, and bytes taken by the transport. */
uint64_t dwell_sender_accepted_bytes(const dwell_sender *sender);
uint64_t dwell_sender_wire_bytes(const dwell_sender *sender);

/* A receiver. */
dwell_receiver *dwell_receiver_new(void);
void dwell_receiver_free(dwell_receiver *receiver);
/* Takes bytes of the transport and returns their number, less than `len` while its output is full;
 * or a result below zero. */
ptrdiff_t dwell_receiver_feed(dwell_receiver *receiver, const uint8_t *bytes, size_t len);
/* Restored and verified bytes; valid until the next call with this receiver. */
const uint8_t *dwell_receiver_data(const dwell_receiver *receiver, size_t *len);
/* Drops the first `len` of them: 0, or DWELL_MISUSE if there were fewer. */
int dwell_receiver_consume(dwell_receiver *receiver, size_t len);
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
