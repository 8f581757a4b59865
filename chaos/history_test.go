package main

import "testing"

// recordedRead records that a client has read this value of the register `key`.
func recordedRead(r *registers, client int, value string) {
	r.history.do(client, registerStep{key: "key"}, func() (any, outcome) { return value, done })
}

// A history is also checked while clients go on, as for planted stale reads.
func TestEffectsOfPendingOperationsMayBeSeen(t *testing.T) {
	r := &registers{history: newHistory()}
	r.history.do(1, registerStep{key: "key", written: "1"}, func() (any, outcome) {
		recordedRead(r, 2, "1")
		if err := r.check(nil); err != nil {
			t.Errorf("before the write has returned: %v", err)
		}
		return true, done
	})
	if err := r.check(nil); err != nil {
		t.Errorf("after the write has returned: %v", err)
	}
	recordedRead(r, 2, "")
	if r.check(nil) == nil {
		t.Error("a stale read is not found")
	}
}

func TestAPendingOperationChangesNothingBeforeItsCall(t *testing.T) {
	r := &registers{history: newHistory()}
	recordedRead(r, 2, "1")
	r.history.do(1, registerStep{key: "key", written: "1"}, func() (any, outcome) {
		if r.check(nil) == nil {
			t.Error("a value is read before its write has begun")
		}
		return true, done
	})
}
