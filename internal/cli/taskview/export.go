package taskview

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// exportVersion is the format of an export: JSON lines, first a head, then the events in
// order, then every blob that they name, then an end that counts them.
const exportVersion = 1

// maxExportLine bounds one line of an export that is read: a blob of 96 MiB in base64.
const maxExportLine = 128 << 20

// exportLine is one line of an export. Type is "export", "event", "blob" or "end".
type exportLine struct {
	Type    string       `json:"type"`
	Version int          `json:"version,omitempty"` // export
	Task    task.ID      `json:"task,omitempty"`    // export
	Event   *event.Event `json:"event,omitempty"`   // event
	Digest  string       `json:"digest,omitempty"`  // blob: hex SHA-256 of Data
	Data    []byte       `json:"data,omitempty"`    // blob, base64
	Events  int          `json:"events,omitempty"`  // end
	Blobs   int          `json:"blobs,omitempty"`   // end
	Root    string       `json:"root,omitempty"`    // end: hash of the last event
}

// Records is where a log and its blobs are.
type Records interface {
	Task(ctx context.Context, id task.ID) (store.Task, error)
	Events(ctx context.Context, id task.ID, after int64, limit int) ([]event.Event, error)
	Blob(ctx context.Context, digest string) ([]byte, error) // class NotFound
}

// Export writes the task's whole log with its blobs as JSON lines. It fails with class
// [task.NotFound] for an unknown task or a missing blob, and does not write a log that does
// not verify.
func Export(ctx context.Context, st Records, id task.ID, w io.Writer) error {
	if _, err := st.Task(ctx, id); err != nil {
		return err
	}
	events, err := st.Events(ctx, id, 0, 0)
	if err != nil {
		return err
	}
	if err := event.VerifyChain(id, events); err != nil {
		return err
	}
	buf := bufio.NewWriter(w)
	enc := json.NewEncoder(buf)
	if err := enc.Encode(exportLine{Type: "export", Version: exportVersion, Task: id}); err != nil {
		return err
	}
	end := exportLine{Type: "end", Events: len(events)}
	for i := range events {
		if err := enc.Encode(exportLine{Type: "event", Event: &events[i]}); err != nil {
			return err
		}
		end.Root = events[i].Hash
	}
	named, err := event.Blobs(events, func(t event.Text) (string, error) {
		if t.Blob == "" {
			return t.Inline, nil
		}
		b, err := st.Blob(ctx, t.Blob)
		return string(b), err
	})
	if err != nil {
		return fmt.Errorf("export %s: %w", id, err)
	}
	for _, digest := range named {
		data, err := st.Blob(ctx, digest)
		if err != nil {
			return fmt.Errorf("export %s: %w", id, err)
		}
		if err := enc.Encode(exportLine{Type: "blob", Digest: digest, Data: data}); err != nil {
			return err
		}
		end.Blobs++
	}
	if err := enc.Encode(end); err != nil {
		return err
	}
	return buf.Flush()
}

// VerifyExport checks an export by itself: the hash chain, every checkpoint's place in it,
// that every blob the events name is there with the content its name says, and that nothing
// is missing at the end. It names the first bad record: a *[event.ChainError] for an event,
// class [task.Invalid] for the rest. It returns the events. Who signed a checkpoint is checked with
// [event.VerifyCheckpoint] and the key.
func VerifyExport(r io.Reader) ([]event.Event, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxExportLine)
	var head, end *exportLine
	var events []event.Event
	blobs := map[string][]byte{}
	n := 0
	for in.Scan() {
		n++
		var l exportLine
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return nil, badExport(n, "it is not JSON")
		}
		switch {
		case (head == nil) != (l.Type == "export"):
			return nil, badExport(n, "an export begins with one head")
		case end != nil:
			return nil, badExport(n, "there is something after the end")
		case l.Type == "export" && (l.Version != exportVersion || !l.Task.Valid()):
			return nil, badExport(n, "its version or task is not one this daybreak can read")
		case l.Type == "export":
			head = &l
		case l.Type == "event" && l.Event != nil && len(blobs) == 0:
			events = append(events, *l.Event)
		case l.Type == "blob":
			_, doubled := blobs[l.Digest]
			if sum := sha256.Sum256(l.Data); hex.EncodeToString(sum[:]) != l.Digest || doubled {
				return nil, badExport(n, "blob "+Escape(l.Digest)+" is doubled or not what its name says")
			}
			blobs[l.Digest] = l.Data
		case l.Type == "end":
			end = &l
		default:
			return nil, badExport(n, "it does not belong there")
		}
	}
	if err := in.Err(); err != nil {
		return nil, badExport(n+1, err.Error())
	}
	if head == nil {
		return nil, badExport(1, "the export is empty")
	}
	return events, checkExport(head.Task, events, blobs, end)
}

func checkExport(id task.ID, events []event.Event, blobs map[string][]byte, end *exportLine) error {
	if len(events) == 0 {
		return failure("the export of %s has no events", id)
	}
	if err := event.VerifyChain(id, events); err != nil {
		return err
	}
	sum, err := event.Fold(events)
	if err != nil {
		return err
	}
	for _, e := range events {
		if p, err := event.Decode(e); err != nil {
			return err
		} else if c, ok := p.(*event.Checkpoint); ok {
			if err := c.Covers(id, events[:e.Seq-1]); err != nil {
				return err
			}
		}
	}
	missing := func(digest string) error { return failure("blob %s, which the log names, is missing", Escape(digest)) }
	named, err := event.Blobs(events, func(t event.Text) (string, error) {
		if data, ok := blobs[t.Blob]; ok || t.Blob == "" {
			return t.Inline + string(data), nil
		}
		return "", missing(t.Blob)
	})
	if err != nil {
		return err
	}
	for _, digest := range named {
		if _, ok := blobs[digest]; !ok {
			return missing(digest)
		}
	}
	switch {
	case len(named) != len(blobs):
		return failure("%d blobs belong to no event", len(blobs)-len(named))
	case end == nil:
		return failure("the export of %s is cut off: it has no end", id)
	case end.Events != len(events) || end.Blobs != len(blobs) || end.Root != sum.LastHash:
		return failure("the export of %s is not whole: its end counts %d events and %d blobs, there are %d and %d",
			id, end.Events, end.Blobs, len(events), len(blobs))
	}
	return nil
}

func badExport(line int, what string) error { return failure("line %d of the export: %s", line, what) }

func failure(format string, args ...any) error {
	return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf(format, args...)}
}
