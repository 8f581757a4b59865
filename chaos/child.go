package main

import (
	"os/exec"
	"runtime"
	"syscall"
)

// childRequest asks the thread that starts processes to start one.
type childRequest struct {
	command *exec.Cmd
	result  chan error
}

var childRequests = make(chan childRequest)

func init() {
	go func() {
		// Linux ends the children when the *thread* that started them ends, so one thread starts
		// all of them and never ends before this process.
		runtime.LockOSThread()
		for request := range childRequests {
			request.result <- request.command.Start()
		}
	}()
}

// startChild starts a process that is killed when this one ends, however it ends: no node outlives
// a harness that panics or is killed.
func startChild(command *exec.Cmd) error {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	request := childRequest{command, make(chan error)}
	childRequests <- request
	return <-request.result
}
