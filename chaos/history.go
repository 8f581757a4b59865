package main

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// history is the operations of all clients of a workload, for porcupine.
type history struct {
	mutex      sync.Mutex
	operations []porcupine.Operation
	// Operations that have not returned yet, without an output.
	pending map[*porcupine.Operation]struct{}
	clients int
	start   time.Time
}

func newHistory() *history {
	return &history{pending: map[*porcupine.Operation]struct{}{}, start: time.Now()}
}

// newClient is the number of another sequential client.
func (h *history) newClient() int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.clients++
	return h.clients
}

// step is the input of an operation.
type step interface {
	// isRead says whether the operation changes nothing. One without an answer says nothing then.
	isRead() bool
}

// do records an operation. One that was refused did not happen and is left out. One of unknown
// outcome never returns, so it may take effect at any time, or after everything else and so never.
func (h *history) do(client int, input step, operation func() (output any, outcome outcome)) outcome {
	recorded := &porcupine.Operation{ClientId: client, Input: input, Return: math.MaxInt64}
	h.mutex.Lock()
	h.pending[recorded] = struct{}{}
	recorded.Call = time.Since(h.start).Nanoseconds()
	h.mutex.Unlock()
	output, outcome := operation()
	returned := time.Since(h.start).Nanoseconds()
	h.mutex.Lock()
	defer h.mutex.Unlock()
	delete(h.pending, recorded)
	switch {
	case outcome == refused, outcome == unknown && input.isRead():
		return outcome
	case outcome == done:
		recorded.Output, recorded.Return = output, returned
	}
	h.operations = append(h.operations, *recorded)
	return outcome
}

// settle says of operations without an answer when they had happened at the latest, because another
// operation has seen their effect. The checker then has fewer orders to try. `effect` identifies
// what an operation writes, and `seen` what one with an answer has seen.
func (h *history) settle(effect func(input any) any, seen func(porcupine.Operation) []any) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	earliest := map[any]int64{}
	for _, operation := range h.operations {
		if operation.Output == nil {
			continue
		}
		for _, one := range seen(operation) {
			if known, isKnown := earliest[one]; !isKnown || operation.Return < known {
				earliest[one] = operation.Return
			}
		}
	}
	for i, operation := range h.operations {
		if operation.Output != nil {
			continue
		}
		// An operation that saw the effect has returned after this one was called.
		if known, isKnown := earliest[effect(operation.Input)]; isKnown && known > operation.Call {
			h.operations[i].Return = known
		}
	}
}

// dropUnanswered leaves out what has no answer and was seen by nothing. It may only be used where
// each later answer would show such an operation: then it may as well have happened after all
// others.
func (h *history) dropUnanswered() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.operations = slices.DeleteFunc(h.operations, func(operation porcupine.Operation) bool {
		return operation.Output == nil && operation.Return == math.MaxInt64
	})
}

// check judges the history. Operations without an output are allowed in any state, and have their
// effect there. Among them are those that have not returned yet: others may have seen their effect.
func (h *history) check(model porcupine.Model, limit time.Duration) error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	operations := slices.Clone(h.operations)
	for operation := range h.pending {
		if !operation.Input.(step).isRead() {
			operations = append(operations, *operation)
		}
	}
	switch porcupine.CheckOperationsTimeout(model, operations, limit) {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return fmt.Errorf("the history is not linearizable (%d operations)", len(operations))
	default:
		return fmt.Errorf("the history could not be judged within %v (%d operations)", limit, len(operations))
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
