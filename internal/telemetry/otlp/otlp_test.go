package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/daybreak-agent/daybreak/internal/telemetry"
)

// message is a decoded protobuf message: numbers and bytes by field.
type message map[int][]any

func decode(t *testing.T, b []byte) message {
	t.Helper()
	m := message{}
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			t.Fatal("not protobuf")
		}
		b = b[n:]
		field := int(key >> 3)
		switch key & 7 {
		case 0:
			v, n := binary.Uvarint(b)
			m[field], b = append(m[field], v), b[n:]
		case 1:
			m[field], b = append(m[field], binary.LittleEndian.Uint64(b)), b[8:]
		case 2:
			l, n := binary.Uvarint(b)
			m[field], b = append(m[field], b[n:n+int(l)]), b[n+int(l):]
		case 5:
			b = b[4:]
		default:
			t.Fatalf("wire type %d", key&7)
		}
	}
	return m
}

func (m message) in(t *testing.T, field int) []message {
	var out []message
	for _, v := range m[field] {
		out = append(out, decode(t, v.([]byte)))
	}
	return out
}

func (m message) text(field int) string {
	if len(m[field]) == 0 {
		return ""
	}
	return string(m[field][0].([]byte))
}

// What a collector gets are the given ids, times, names and attributes, over the standard path.
func TestExport(t *testing.T) {
	var mu sync.Mutex
	var got []byte
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil || r.Method != "POST" || r.URL.Path != "/base/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s %s %v", r.Method, r.URL.Path, r.Header.Get("Content-Type"), err)
		}
		mu.Lock()
		got = append(got, b...)
		mu.Unlock()
	}))
	defer collector.Close()
	e, err := New(t.Context(), Config{Endpoint: collector.URL + "/base/", Service: "daybreak", Version: "v1", Instance: "i", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	e.Export(telemetry.Span{
		Trace: [16]byte{1, 2}, ID: [8]byte{3}, Parent: [8]byte{4}, Name: "chat claude", Client: true, Start: start, End: start.Add(time.Second), Error: "overloaded",
		Attrs: []telemetry.Attr{{Key: "gen_ai.operation.name", Value: "chat"}, {Key: "gen_ai.usage.input_tokens", Value: int64(7)}, {Key: "f", Value: 0.5}, {Key: "b", Value: true}, {Key: "l", Value: []string{"x"}}},
	})
	e.Export(telemetry.Span{Trace: [16]byte{1, 2}, ID: [8]byte{4}, Name: "step 1", Start: start, End: start})
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	resource := decode(t, got).in(t, 1)[0]
	spans := resource.in(t, 2)[0].in(t, 2)
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	s := spans[0]
	if s.text(5) != "chat claude" || !bytes.Equal(s[1][0].([]byte), append([]byte{1, 2}, make([]byte, 14)...)) || s.text(2) != "\x03\x00\x00\x00\x00\x00\x00\x00" || s.text(4) != "\x04\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("%q %x %x %x", s.text(5), s.text(1), s.text(2), s.text(4))
	}
	const client, failed = 3, 2
	if s[6][0] != uint64(client) || s[7][0] != uint64(start.UnixNano()) || s[8][0] != uint64(start.Add(time.Second).UnixNano()) || s.in(t, 15)[0][3][0] != uint64(failed) {
		t.Errorf("kind %v, %v to %v, status %v", s[6], s[7], s[8], s[15])
	}
	attrs := map[string]message{}
	for _, a := range s.in(t, 9) {
		attrs[a.text(1)] = a.in(t, 2)[0]
	}
	if attrs["gen_ai.operation.name"].text(1) != "chat" || attrs["gen_ai.usage.input_tokens"][3][0] != uint64(7) || attrs["b"][2][0] != uint64(1) || attrs["error.type"].text(1) != "overloaded" {
		t.Errorf("%v", attrs)
	}
	if spans[1].text(4) != "" {
		t.Error("a span without a parent has one")
	}
	about := map[string]string{}
	for _, a := range resource.in(t, 1)[0].in(t, 1) {
		about[a.text(1)] = a.in(t, 2)[0].text(1)
	}
	if about["service.name"] != "daybreak" || about["service.version"] != "v1" || about["service.instance.id"] != "i" {
		t.Errorf("%v", about)
	}
}

// A collector that is away holds nobody up, and its end is bounded.
func TestNobodyThere(t *testing.T) {
	var log bytes.Buffer
	e, err := New(t.Context(), Config{Endpoint: "http://127.0.0.1:1", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 { // more than are kept
		e.Export(telemetry.Span{Trace: [16]byte{1}, ID: [8]byte{1}, Name: "x", Start: time.Now(), End: time.Now()})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = e.Close(ctx)
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "spans cannot be sent") {
		t.Errorf("it said %d times: %s", n, log.String())
	}
}

// The names that the projection writes are the conventions'.
func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		"gen_ai.operation.name": string(semconv.GenAIOperationNameKey), "gen_ai.provider.name": string(semconv.GenAIProviderNameKey),
		"gen_ai.request.model": string(semconv.GenAIRequestModelKey), "gen_ai.request.max_tokens": string(semconv.GenAIRequestMaxTokensKey),
		"gen_ai.response.finish_reasons": string(semconv.GenAIResponseFinishReasonsKey), "gen_ai.conversation.id": string(semconv.GenAIConversationIDKey),
		"gen_ai.agent.name": string(semconv.GenAIAgentNameKey), "gen_ai.tool.name": string(semconv.GenAIToolNameKey), "gen_ai.tool.type": string(semconv.GenAIToolTypeKey),
		"gen_ai.usage.input_tokens": string(semconv.GenAIUsageInputTokensKey), "gen_ai.usage.output_tokens": string(semconv.GenAIUsageOutputTokensKey),
		"gen_ai.usage.cache_read.input_tokens":     string(semconv.GenAIUsageCacheReadInputTokensKey),
		"gen_ai.usage.cache_creation.input_tokens": string(semconv.GenAIUsageCacheCreationInputTokensKey),
		"chat": semconv.GenAIOperationNameChat.Value.AsString(), "execute_tool": semconv.GenAIOperationNameExecuteTool.Value.AsString(),
		"invoke_agent": semconv.GenAIOperationNameInvokeAgent.Value.AsString(), "error.type": string(semconv.ErrorTypeKey),
	} {
		if got != want {
			t.Errorf("%s is %s now", got, want)
		}
	}
}
