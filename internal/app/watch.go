package app

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/notify"
	"github.com/daybreak-agent/daybreak/internal/notify/mail"
	"github.com/daybreak-agent/daybreak/internal/notify/webhook"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/telemetry"
	"github.com/daybreak-agent/daybreak/internal/telemetry/otlp"
	"github.com/daybreak-agent/daybreak/internal/telemetry/prom"
	"github.com/daybreak-agent/daybreak/internal/tool"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// watch is who watches this process.
type watch struct {
	*telemetry.Watch
	numbers *prom.Registry // nil but in a service
}

// version is that of this build.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// flush bounds how long the end of a process waits for a collector.
const flush = 5 * time.Second

// Watch is told of what is recorded. It must first be called before work begins in other
// goroutines.
func (a *App) Watch() (*telemetry.Watch, error) {
	if a.watch != nil {
		return a.watch.Watch, nil
	}
	w := &watch{}
	cfg := telemetry.Config{Tools: tool.NewRegistry().Names()}
	if a.tracing() {
		exp, err := otlp.New(context.Background(), otlp.Config{
			Endpoint: a.Config.Telemetry.OTLPEndpoint, Service: "daybreak", Version: version(), Instance: serviceOwner(), Logger: a.opts.Logger,
		})
		if err != nil {
			return nil, &task.Error{Class: task.Invalid, Err: err, Fix: "correct telemetry.otlp_endpoint or the OTEL_EXPORTER_OTLP_* variables"}
		}
		cfg.Exporter = exp
	}
	if a.queue != nil {
		var err error
		if w.numbers, err = prom.New(a.fleetNumbers); err != nil {
			return nil, err
		}
		cfg.Meter = w.numbers
	}
	w.Watch = telemetry.New(cfg)
	a.watch = w
	return w.Watch, nil
}

// tracing reports whether spans are wanted, by the configuration or by OpenTelemetry's own variables.
func (a *App) tracing() bool {
	if a.opts.Getenv("OTEL_SDK_DISABLED") == "true" || a.opts.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return a.Config.Telemetry.OTLPEndpoint != "" || a.opts.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || a.opts.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

func (a *App) closeWatch() error {
	if a.watch == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flush)
	defer cancel()
	if err := a.watch.Close(ctx, a.Now()); err != nil { // a collector that is away fails nothing
		a.opts.Logger.Warn("the last spans could not be sent", "error", err)
	}
	return nil
}

// watched tells the watch and whoever else wants to know.
func watched(w *telemetry.Watch, also worker.Observer) worker.Observer {
	return func(e event.Event, p event.Payload) {
		w.Observe(e, p)
		if also != nil {
			also(e, p)
		}
	}
}

// maxCounted is how many unfinished tasks are counted.
const maxCounted = 20_000

// fleetNumbers reads the gauges.
func (a *App) fleetNumbers(ctx context.Context) ([]telemetry.Sample, error) {
	open := []task.State{task.Queued, task.Preparing, task.Working, task.Verifying, task.Publishing, task.InReview}
	ts, err := a.Store.Tasks(ctx, store.Filter{States: open, Limit: maxCounted})
	if err != nil {
		return nil, err
	}
	states, waiting, held := map[task.State]int{}, 0, 0
	for _, t := range ts {
		states[t.State]++
		switch {
		case t.Owner != "":
			held++
		case t.State == task.Queued:
			waiting++
		}
	}
	out := []telemetry.Sample{{Name: telemetry.QueueNow, Value: float64(waiting)}, {Name: telemetry.LeasesNow, Value: float64(held)}}
	if a.ready != nil {
		s := a.ready.Stats()
		out = append(out, telemetry.Sample{Name: telemetry.ReadyNow, Value: float64(s.Ready)},
			telemetry.Sample{Name: telemetry.ReadyClaims, Value: float64(s.Claimed), Labels: []string{"handed_out"}},
			telemetry.Sample{Name: telemetry.ReadyClaims, Value: float64(s.Missed), Labels: []string{"missed"}},
			telemetry.Sample{Name: telemetry.ReadyWait, Value: s.Waited.Claimed.Seconds(), Labels: []string{"handed_out"}},
			telemetry.Sample{Name: telemetry.ReadyWait, Value: s.Waited.Missed.Seconds(), Labels: []string{"missed"}},
			telemetry.Sample{Name: telemetry.ReadyStart, Value: s.Refill.Seconds()})
	}
	for _, s := range open {
		out = append(out, telemetry.Sample{Name: telemetry.TasksNow, Value: float64(states[s]), Labels: []string{string(s)}})
	}
	return out, nil
}

// MetricsHandler answers with the numbers, to who has the operator's token and, where serve.url is not
// set, to this machine.
func (a *App) MetricsHandler() (http.Handler, error) {
	if _, err := a.Watch(); err != nil {
		return nil, err
	}
	if a.watch.numbers == nil {
		return nil, &task.Error{Class: task.Internal, Msg: "this process keeps no numbers"}
	}
	token, err := a.Token()
	if err != nil {
		return nil, err
	}
	near := a.Config.Serve.URL == "" // else people come through a proxy, and a plain one looks like this machine
	return access.Machine(token, near, a.watch.numbers.Handler()), nil
}

// ServeMetrics answers for the numbers alone, until ctx ends.
func (a *App) ServeMetrics(ctx context.Context, l net.Listener) error {
	h, err := a.MetricsHandler()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	const slow = 10 * time.Second
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: slow, ReadTimeout: slow, WriteTimeout: 3 * slow, MaxHeaderBytes: 16 << 10}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// notify is whom runs tell.
func (a *App) notify() (worker.Notify, error) {
	c := a.Config.Notify
	n := worker.Notify{Page: a.taskPage}
	for _, o := range c.On {
		n.On = append(n.On, notify.About(o))
	}
	if c.Webhook != nil {
		address, err := c.Webhook.Address(a.opts.Getenv)
		if err != nil {
			return n, err
		}
		roots, err := authorities(c.Webhook.CAFile)
		if err != nil {
			return n, err
		}
		s, err := webhook.New(address, roots)
		if err != nil {
			return n, err
		}
		n.Senders = append(n.Senders, s)
	}
	if m := c.Mail; m != nil {
		password, err := m.Password(a.opts.Getenv)
		if err != nil {
			return n, err
		}
		roots, err := authorities(m.CAFile)
		if err != nil {
			return n, err
		}
		n.Senders = append(n.Senders, mail.New(mail.Config{
			Server: m.Server, From: m.From, To: m.To, User: m.User, Password: password, Roots: roots, Now: a.Now,
		}))
	}
	return n, nil
}

// taskPage is where people see a task, where there is a service.
func (a *App) taskPage(id task.ID) string {
	if a.Config.Serve.URL == "" && a.queue == nil {
		return ""
	}
	return a.Address() + "/tasks/" + string(id)
}

// authorities reads certificates; nil without a file: the system's.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, &task.Error{Class: task.Invalid, Msg: "cannot read the certificates for notify", Err: err}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, &task.Error{Class: task.Invalid, Msg: "there is no certificate in " + strconv.Quote(file), Err: errors.New("it must be PEM")}
	}
	return pool, nil
}
