package wire

import (
	"reflect"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// broken panics in every call, as a library may over an answer that it did not expect.
type broken struct{ forge.Host }

func (broken) Name() string { return "broken" }

// TestNoAnswerEndsTheProcess: a call that panics is an error, whichever it is.
func TestNoAnswerEndsTheProcess(t *testing.T) {
	h := reflect.ValueOf(Tidy(broken{}))
	for i := range h.NumMethod() {
		name, m := h.Type().Method(i).Name, h.Method(i)
		if name == "Verify" || m.Type().NumOut() == 0 || m.Type().Out(m.Type().NumOut()-1) != reflect.TypeFor[error]() {
			continue // no answer of a server is read there
		}
		t.Run(name, func(t *testing.T) {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("it panics: %v", r)
				}
			}()
			args := make([]reflect.Value, m.Type().NumIn())
			for i := range args {
				args[i] = reflect.Zero(m.Type().In(i))
			}
			out := m.Call(args)
			if err, _ := out[len(out)-1].Interface().(error); task.ClassOf(err) != task.Transient {
				t.Errorf("%v", err)
			}
		})
	}
}
