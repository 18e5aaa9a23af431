package taskview

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"

	"github.com/daybreak-agent/daybreak/internal/event"
)

// ReadExport reads an export also when it is not what was written, which problem then says:
// a replay of a changed record is how one sees what a change of it would mean. err says that
// it is no export at all.
func ReadExport(r io.Reader) (events []event.Event, blobs map[string][]byte, problem, err error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, nil, err
	}
	_, problem = VerifyExport(bytes.NewReader(raw))
	in := bufio.NewScanner(bytes.NewReader(raw))
	in.Buffer(make([]byte, 0, 64<<10), maxExportLine)
	blobs = map[string][]byte{}
	for n := 1; in.Scan(); n++ {
		var l exportLine
		if json.Unmarshal(in.Bytes(), &l) != nil {
			return nil, nil, nil, badExport(n, "it is not JSON")
		}
		switch {
		case n == 1 && (l.Type != "export" || l.Version != exportVersion):
			return nil, nil, nil, badExport(n, "its version is not one this daybreak can read")
		case l.Type == "event" && l.Event != nil:
			events = append(events, *l.Event)
		case l.Type == "blob":
			blobs[l.Digest] = l.Data
		}
	}
	if err := in.Err(); err != nil {
		return nil, nil, nil, failure("the export cannot be read: %v", err)
	}
	if len(events) == 0 {
		return nil, nil, nil, failure("the export holds no event")
	}
	return events, blobs, problem, nil
}
