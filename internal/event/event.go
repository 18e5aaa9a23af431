// Package event owns the event log's record: the kinds, their versioned payloads, the codec,
// the hash chain, and the fold that turns a log back into a task's state.
//
// Invariants: a record is immutable; (task, seq) is its key and seq starts at 1 without gaps;
// each record's hash covers every field and the hash before it, so that changing, dropping,
// inserting or reordering one is found by [VerifyChain]; a payload written by an older
// version still decodes; state is only ever a fold over events.
package event

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// InlineLimit is the size in bytes above which a text is stored as a blob and the event
// keeps its digest.
const InlineLimit = 16 << 10

// Kind names what happened. Kinds are never renamed or reused.
type Kind string

// Event is one record of a task's log.
type Event struct {
	Task    task.ID         `json:"task"`
	Seq     int64           `json:"seq"`   // 1, 2, 3, …
	Epoch   int64           `json:"epoch"` // of the lease that wrote it; 0 for the creation
	Time    time.Time       `json:"time"`  // UTC, microseconds
	Kind    Kind            `json:"kind"`
	Version int             `json:"version"` // of the payload's schema
	Payload json.RawMessage `json:"payload"`
	Prev    string          `json:"prev"` // hex SHA-256 of the record before; [Genesis] of the task for seq 1
	Hash    string          `json:"hash"` // hex SHA-256 of this record
}

// Draft is an event that has no place in a log yet. The store gives it one.
type Draft struct {
	Kind    Kind
	Version int
	Payload json.RawMessage
}

// Genesis is the Prev of a task's first record. It binds the chain to the task's id.
func Genesis(id task.ID) string {
	h := sha256.Sum256([]byte("daybreak.event.genesis.v1\x00" + string(id)))
	return hex.EncodeToString(h[:])
}

// Seal places a draft after prev (hash prevHash, sequence seq-1) and computes its hash.
func Seal(id task.ID, seq, epoch int64, at time.Time, prevHash string, d Draft) Event {
	e := Event{
		Task: id, Seq: seq, Epoch: epoch, Time: at.UTC().Truncate(time.Microsecond),
		Kind: d.Kind, Version: d.Version, Payload: d.Payload, Prev: prevHash,
	}
	e.Hash = e.computeHash()
	return e
}

// computeHash hashes every field, each framed by its length, under a domain prefix, so that
// no two different records share an encoding.
func (e Event) computeHash() string {
	h := sha256.New()
	field := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	num := func(v int64) { field(binary.BigEndian.AppendUint64(nil, uint64(v))) }
	h.Write([]byte("daybreak.event.v1\x00"))
	field([]byte(e.Prev))
	field([]byte(e.Task))
	num(e.Seq)
	num(e.Epoch)
	num(e.Time.UnixMicro())
	field([]byte(e.Kind))
	num(int64(e.Version))
	field(e.Payload)
	return hex.EncodeToString(h.Sum(nil))
}

// ChainError names the first record at which a log stops being what was written.
type ChainError struct {
	Task task.ID
	Seq  int64
	What string
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("event log of %s is broken at event %d: %s", e.Task, e.Seq, e.What)
}

// VerifyChain checks a log from its first record. It returns a *[ChainError] that names the
// first bad record, or nil. A truncated tail cannot be seen from the log alone: compare the
// last hash with a checkpoint.
func VerifyChain(id task.ID, events []Event) error {
	prev := Genesis(id)
	for i, e := range events {
		bad := func(what string) error { return &ChainError{id, int64(i) + 1, what} }
		switch {
		case e.Task != id:
			return bad("it belongs to task " + string(e.Task))
		case e.Seq != int64(i)+1:
			return bad(fmt.Sprintf("its number is %d (a record is missing, doubled or moved)", e.Seq))
		case e.Prev != prev:
			return bad("it does not follow the record before it")
		case e.Hash != e.computeHash():
			return bad("its content was changed after it was written")
		}
		if i > 0 && e.Epoch < events[i-1].Epoch {
			return bad("it was written under an older lease than the record before it")
		}
		prev = e.Hash
	}
	return nil
}
