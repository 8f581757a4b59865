package main

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// history is the operations of all clients of a workload, for porcupine.
type history struct {
	mutex      sync.Mutex
	operations []porcupine.Operation
	clients    int
	start      time.Time
}

func newHistory() *history { return &history{start: time.Now()} }

// newClient is the number of another sequential client.
func (h *history) newClient() int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.clients++
	return h.clients
}

// do records an operation. One that was refused did not happen and is left out. One of unknown outcome never returns, so it may
// take effect at any time, or after everything else and so never.
func (h *history) do(client int, input any, operation func() (output any, outcome outcome)) outcome {
	call := time.Since(h.start).Nanoseconds()
	output, outcome := operation()
	returned := time.Since(h.start).Nanoseconds()
	switch outcome {
	case refused:
		return outcome
	case unknown:
		output, returned = nil, math.MaxInt64
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.operations = append(h.operations,
		porcupine.Operation{ClientId: client, Input: input, Call: call, Output: output, Return: returned})
	return outcome
}

// check judges the history. Operations without an output are allowed in any state, and have their effect there.
func (h *history) check(model porcupine.Model, limit time.Duration) error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	switch porcupine.CheckOperationsTimeout(model, h.operations, limit) {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return fmt.Errorf("the history is not linearizable (%d operations)", len(h.operations))
	default:
		return fmt.Errorf("the history could not be judged within %v (%d operations)", limit, len(h.operations))
	}
}

// byKey parts a history by what `key` says of an input.
func byKey(key func(input any) string) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(operations []porcupine.Operation) [][]porcupine.Operation {
		places := map[string]int{}
		var parts [][]porcupine.Operation
		for _, operation := range operations {
			name := key(operation.Input)
			place, known := places[name]
			if !known {
				place = len(parts)
				places[name] = place
				parts = append(parts, nil)
			}
			parts[place] = append(parts[place], operation)
		}
		return parts
	}
}
