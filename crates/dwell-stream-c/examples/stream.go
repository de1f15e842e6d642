// A stream from Go by cgo: compressed while a pipe takes no more, restored and compared.
//
//	PKG_CONFIG_PATH=/usr/local/lib/pkgconfig LD_LIBRARY_PATH=/usr/local/lib go run stream.go [FILE]
package main

/*
#cgo pkg-config: dwell-stream
#include <stdlib.h>
#include <time.h>
#include <dwell_stream.h>

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// Go can't take the address of a C function that is to be called by C.
static int compress_block(dwell_sender *sender) { return dwell_sender_compress(sender, now_ns); }
*/
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
	"unsafe"
)

// The bytes a second that the reader takes, in place of a slow link.
const rate = 1_000_000

// Writer compresses what is written to it while the writer below takes no more: a goroutine of its own
// writes there, until Close. One goroutine at a time may use it.
type Writer struct {
	to io.Writer
	// For all that follows.
	lock      sync.Mutex
	changed   *sync.Cond
	sender    *C.dwell_sender
	isWriting bool
	isOver    bool
	err       error
}

// NewWriter makes a writer with these settings, of which dwell_stream.h has a list.
func NewWriter(to io.Writer, settings map[string]string) (*Writer, error) {
	why := (*C.char)(C.calloc(1, 200))
	defer C.free(unsafe.Pointer(why))
	config := C.dwell_config_new()
	defer C.dwell_config_free(config)
	for name, value := range settings {
		n, v := C.CString(name), C.CString(value)
		result := C.dwell_config_set(config, n, v, why, 200)
		C.free(unsafe.Pointer(n))
		C.free(unsafe.Pointer(v))
		if result != 0 {
			return nil, errors.New(C.GoString(why))
		}
	}
	sender := C.dwell_sender_with(config, why, 200)
	if sender == nil {
		return nil, errors.New(C.GoString(why))
	}
	w := &Writer{to: to, sender: sender}
	w.changed = sync.NewCond(&w.lock)
	go w.drain()
	return w, nil
}

// Write takes all of it.
func (w *Writer) Write(data []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	given := 0
	for given < len(data) && w.err == nil {
		at := (*C.uint8_t)(unsafe.Pointer(&data[given]))
		taken := int(C.dwell_sender_accept(w.sender, at, C.size_t(len(data)-given)))
		given += taken
		w.changed.Broadcast()
		// What could go at once is not to wait for that.
		if (w.isWriting || taken == 0) && C.compress_block(w.sender) == 1 {
			continue
		}
		if taken == 0 {
			w.changed.Wait()
		}
	}
	return given, w.err
}

// Close says the stream's end, waits until all is written, and frees the writer.
func (w *Writer) Close() error {
	w.lock.Lock()
	defer w.lock.Unlock()
	C.dwell_sender_finish(w.sender)
	w.changed.Broadcast()
	for !w.isOver {
		if C.compress_block(w.sender) == 0 {
			w.changed.Wait()
		}
	}
	C.dwell_sender_free(w.sender)
	w.sender = nil
	return w.err
}

// drain writes until the stream's end. While it is in Write the writer below takes no more: the sender has to
// be notified of that, or what fits into its buffer goes as it is.
func (w *Writer) drain() {
	w.lock.Lock()
	defer w.lock.Unlock()
	for w.err == nil && !bool(C.dwell_sender_is_finished(w.sender)) {
		var length C.size_t
		wire := C.dwell_sender_wire(w.sender, C.now_ns(), &length)
		if length == 0 {
			if C.compress_block(w.sender) == 0 {
				w.changed.Wait()
			}
			continue
		}
		piece := C.GoBytes(unsafe.Pointer(wire), C.int(length))
		C.dwell_sender_wrote(w.sender, C.now_ns(), length)
		C.dwell_sender_blocked(w.sender, C.now_ns())
		w.isWriting = true
		w.changed.Broadcast()
		w.lock.Unlock()
		_, err := w.to.Write(piece)
		w.lock.Lock()
		w.isWriting = false
		C.dwell_sender_unblocked(w.sender)
		w.err = err
		w.changed.Broadcast()
	}
	w.isOver = true
	w.changed.Broadcast()
}

// link reads no more than so many bytes a second, and counts them.
type link struct {
	from  io.Reader
	bytes int
}

func (l *link) Read(buffer []byte) (int, error) {
	n, err := l.from.Read(buffer[:min(len(buffer), 16<<10)])
	l.bytes += n
	time.Sleep(time.Duration(n) * time.Second / rate)
	return n, err
}

// restore reads a stream to its end.
func restore(from io.Reader) ([]byte, error) {
	receiver := C.dwell_receiver_new()
	defer C.dwell_receiver_free(receiver)
	var got bytes.Buffer
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		for fed := 0; fed < n; {
			taken := C.dwell_receiver_feed(receiver, (*C.uint8_t)(unsafe.Pointer(&buffer[fed])), C.size_t(n-fed))
			if taken < 0 {
				return nil, errors.New("the stream is damaged")
			}
			fed += int(taken)
			var length C.size_t
			data := C.dwell_receiver_data(receiver, &length)
			if length > 0 {
				got.Write(unsafe.Slice((*byte)(unsafe.Pointer(data)), int(length)))
				C.dwell_receiver_consume(receiver, length)
			}
		}
		if err == io.EOF {
			if C.dwell_receiver_end(receiver) != 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return got.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func run() error {
	data := bytes.Repeat([]byte("from Go, through C, by Rust\n"), 50_000)
	if len(os.Args) > 1 {
		var err error
		if data, err = os.ReadFile(os.Args[1]); err != nil {
			return err
		}
	}
	far, near := io.Pipe()
	go func() {
		writer, err := NewWriter(near, nil)
		if err == nil {
			_, err = writer.Write(data)
			err = errors.Join(err, writer.Close())
		}
		near.CloseWithError(err)
	}()
	wire := &link{from: far}
	got, err := restore(wire)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return errors.New("it is not the same")
	}
	version := C.GoString(C.dwell_stream_version())
	fmt.Printf("version %s: %d bytes, %d on the wire, and the same\n", version, len(data), wire.bytes)
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
