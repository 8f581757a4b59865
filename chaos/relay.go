package main

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// transparent is IP_TRANSPARENT of Linux: a socket may have an address of another machine.
const transparent = 19

// relay forwards the connections that a node makes to another one, slowly if told to, and keeps
// what was sent.
type relay struct {
	target   string
	listener net.Listener
	// Whether each direction of a connection gets one byte a second.
	isSlow    atomic.Bool
	forwarded atomic.Int64
	closed    chan struct{}

	mutex       sync.Mutex
	connections []net.Conn
	recorded    []*recording
}

// recording is what the maker of a connection has sent.
type recording struct{ bytes []byte }

// recordedMax bounds what is kept of one connection.
const recordedMax = 256 << 10

// newRelay listens at the address of a node. Only connections that the network diverts reach it.
func newRelay(target string) (*relay, error) {
	config := net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) error {
		var failed error
		if err := socket.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_IP, transparent, 1)
		}); err != nil {
			return err
		}
		return failed
	}}
	listener, err := config.Listen(context.Background(), "tcp4", target)
	if err != nil {
		return nil, err
	}
	r := &relay{target: target, listener: listener, closed: make(chan struct{})}
	go r.accept()
	return r, nil
}

func (r *relay) accept() {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.DialTimeout("tcp4", r.target, requestTimeout)
		if err != nil {
			near.Close()
			continue
		}
		sent := &recording{}
		r.mutex.Lock()
		r.connections = append(r.connections, near, far)
		r.recorded = append(r.recorded, sent)
		r.mutex.Unlock()
		go r.pump(far, near, sent)
		go r.pump(near, far, nil)
	}
}

// pump forwards one direction of a connection.
func (r *relay) pump(to, from net.Conn, sent *recording) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 16<<10)
	for {
		limit := len(buffer)
		if r.isSlow.Load() {
			limit = 1
			select {
			case <-r.closed:
				return
			case <-time.After(time.Second):
			}
		}
		count, err := from.Read(buffer[:limit])
		if sent != nil {
			r.mutex.Lock()
			if len(sent.bytes) < recordedMax {
				sent.bytes = append(sent.bytes, buffer[:count]...)
			}
			r.mutex.Unlock()
		}
		if _, failed := to.Write(buffer[:count]); failed != nil || err != nil {
			return
		}
		r.forwarded.Add(int64(count))
	}
}

// recordings are copies of what was sent by now, of connections with at least so many bytes.
func (r *relay) recordings(least int) (found [][]byte) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, sent := range r.recorded {
		if len(sent.bytes) >= least {
			found = append(found, append([]byte(nil), sent.bytes...))
		}
	}
	return found
}

func (r *relay) close() {
	r.listener.Close()
	close(r.closed)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, connection := range r.connections {
		connection.Close()
	}
}
