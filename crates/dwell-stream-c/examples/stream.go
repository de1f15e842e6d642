// A stream from Go by cgo: compressed, written to a pipe, restored and compared.
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
	"unsafe"
)

// Writer compresses what is written to it. One goroutine at a time may use it.
type Writer struct {
	to     io.Writer
	sender *C.dwell_sender
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
	return &Writer{to, sender}, nil
}

// Write takes all of it.
func (w *Writer) Write(data []byte) (int, error) {
	given := 0
	for given < len(data) {
		at := (*C.uint8_t)(unsafe.Pointer(&data[given]))
		given += int(C.dwell_sender_accept(w.sender, at, C.size_t(len(data)-given)))
		if err := w.pump(); err != nil {
			return given, err
		}
	}
	return given, nil
}

// Close says the stream's end, and frees the writer.
func (w *Writer) Close() error {
	C.dwell_sender_finish(w.sender)
	err := w.pump()
	C.dwell_sender_free(w.sender)
	w.sender = nil
	return err
}

func (w *Writer) pump() error {
	for {
		for {
			var length C.size_t
			wire := C.dwell_sender_wire(w.sender, C.now_ns(), &length)
			if length == 0 {
				break
			}
			n, err := w.to.Write(unsafe.Slice((*byte)(unsafe.Pointer(wire)), int(length)))
			C.dwell_sender_wrote(w.sender, C.now_ns(), C.size_t(n))
			if err != nil {
				return err
			}
		}
		C.dwell_sender_unblocked(w.sender)
		if C.compress_block(w.sender) == 0 {
			return nil
		}
	}
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
		writer, err := NewWriter(near, map[string]string{"objective": "bytes", "codecs": "zstd:3"})
		if err == nil {
			_, err = writer.Write(data)
			err = errors.Join(err, writer.Close())
		}
		near.CloseWithError(err)
	}()
	got, err := restore(far)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return errors.New("it is not the same")
	}
	fmt.Printf("version %s: %d bytes, and the same\n", C.GoString(C.dwell_stream_version()), len(data))
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
