package github

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// The packages in which GitHub publishes what its API is, with the hashes of the versions that
// the tests know.
const (
	descriptionPackage = "@octokit/openapi@23.0.2"
	descriptionHash    = "pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg=="
	examplesPackage    = "@octokit/webhooks-examples@7.6.1"
	examplesHash       = "De6U3XB6O3DtCa7bKgCMzTHdeopqqZ6SNivMYJnK65ierKL1AnNIA0tkRYCRS7lwGT792d+Ps1WbfHlso6MynQ=="
)

// published reads one file of a package: from the project's tools folder, or where CI is set
// from the registry, through its own client. Elsewhere the test is skipped.
func published(t *testing.T, pkg, hash, file string) []byte {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(here), "..", "..", "..", ".tools", "npm")
	name := filepath.Join(dir, strings.NewReplacer("@", "", "/", "-").Replace(pkg)+".tgz")
	b, err := os.ReadFile(name)
	if err != nil {
		if os.Getenv("CI") != "true" {
			t.Skip("GitHub's own description is not here; it is fetched where CI is true")
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		tmp := t.TempDir()
		cmd := exec.Command("npm", "pack", "--silent", "--pack-destination", tmp, pkg)
		cmd.Dir = tmp
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("npm pack %s: %v\n%s", pkg, err, out)
		}
		got, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
		if err != nil || len(got) != 1 {
			t.Fatalf("npm pack made %v, %v", got, err)
		}
		if b, err = os.ReadFile(got[0]); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha512.Sum512(b)
	if got := base64.StdEncoding.EncodeToString(sum[:]); got != hash {
		t.Fatalf("%s is not the package that is known: %s", pkg, got)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s has no %s", pkg, file)
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == file {
			if b, err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
}

// description is GitHub's own, of the operations that a fake has.
type description struct {
	doc *openapi3.T
	mu  sync.Mutex
	// used are the operations that were called and found to be as described.
	used map[string]int
}

// describe loads the operations that keep names, as "METHOD /path/{template}".
func describe(t *testing.T, keep []string) *description {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(published(t, descriptionPackage, descriptionHash, "package/generated/api.github.com.json"), &raw); err != nil {
		t.Fatal(err)
	}
	var paths map[string]map[string]json.RawMessage
	if err := json.Unmarshal(raw["paths"], &paths); err != nil {
		t.Fatal(err)
	}
	few := map[string]map[string]json.RawMessage{}
	for _, k := range keep {
		method, path, _ := strings.Cut(k, " ")
		op, ok := paths[path][strings.ToLower(method)]
		if !ok {
			t.Fatalf("GitHub describes no %s", k)
		}
		if few[path] == nil {
			few[path] = map[string]json.RawMessage{}
		}
		few[path][strings.ToLower(method)] = op
	}
	b, err := json.Marshal(few)
	if err != nil {
		t.Fatal(err)
	}
	raw["paths"] = b
	delete(raw, "x-webhooks")
	if b, err = json.Marshal(raw); err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(b)
	if err != nil {
		t.Fatal(err)
	}
	return &description{doc: doc, used: map[string]int{}}
}

// route is one operation for the validator.
func (d *description) route(method, template string) *routers.Route {
	item := d.doc.Paths.Value(template)
	return &routers.Route{Spec: d.doc, Path: template, PathItem: item, Method: method, Operation: item.GetOperation(method)}
}

// request says what is wrong with a request: what GitHub's description does not have is wrong,
// as a field with a wrong name would be silently ignored.
func (d *description) request(r *http.Request, template string, params map[string]string) (*openapi3filter.RequestValidationInput, error) {
	route := d.route(r.Method, template)
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: func(context.Context, *openapi3filter.AuthenticationInput) error { return nil }, MultiError: true},
	}
	known := map[string]bool{}
	for _, p := range append(slices.Clone(route.Operation.Parameters), route.PathItem.Parameters...) {
		if p.Value.In == openapi3.ParameterInQuery {
			known[p.Value.Name] = true
		}
	}
	for name := range r.URL.Query() {
		if !known[name] {
			return in, fmt.Errorf("GitHub does not describe the query %q", name)
		}
	}
	if body := route.Operation.RequestBody; body != nil {
		if m := body.Value.Content.Get("application/json"); m != nil {
			closed := []*openapi3.SchemaRef{m.Schema}
			if len(m.Schema.Value.Properties) == 0 {
				closed = append(slices.Clone(m.Schema.Value.AnyOf), m.Schema.Value.OneOf...)
			}
			d.mu.Lock()
			for _, s := range closed {
				if len(s.Value.Properties) > 0 {
					s.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: openapi3.Ptr(false)}
				}
			}
			d.mu.Unlock()
		}
	}
	return in, openapi3filter.ValidateRequest(r.Context(), in)
}

// response fills what GitHub's schema wants of an answer with the least that is valid, below
// what the fake says, and says what is wrong with the result.
func (d *description) response(in *openapi3filter.RequestValidationInput, status int, say any) ([]byte, error) {
	ref := in.Route.Operation.Responses.Status(status)
	if ref == nil {
		return nil, fmt.Errorf("GitHub does not describe the answer %d", status)
	}
	var body []byte
	header := http.Header{}
	if m := ref.Value.Content.Get("application/json"); m != nil {
		b, err := json.Marshal(fill(m.Schema.Value, say, 0))
		if err != nil {
			return nil, err
		}
		body = b
		header.Set("Content-Type", "application/json")
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: status, Header: header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{MultiError: true, IncludeResponseStatus: true},
	}
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used[in.Route.Method+" "+in.Route.Path]++
	return body, nil
}

// fill makes a value that a schema takes, with say's where it says something.
func fill(s *openapi3.Schema, say any, depth int) any {
	if say == nil && depth > 0 && s.Nullable {
		return nil
	}
	props, required := openapi3.Schemas{}, []string{}
	collect(s, say, props, &required)
	if len(props) > 0 || s.Type.Is("object") {
		over, _ := say.(map[string]any)
		if say != nil && over == nil {
			return say
		}
		out := map[string]any{}
		for _, name := range required {
			if p := props[name]; p != nil {
				out[name] = fill(p.Value, over[name], depth+1)
			}
		}
		for name, v := range over {
			if p := props[name]; p != nil {
				v = fill(p.Value, v, depth+1)
			}
			out[name] = v
		}
		return out
	}
	if list, ok := say.([]any); ok && s.Items != nil {
		out := make([]any, len(list))
		for i, v := range list {
			out[i] = fill(s.Items.Value, v, depth+1)
		}
		return out
	}
	if say != nil {
		return say
	}
	for _, option := range append(slices.Clone(s.OneOf), s.AnyOf...) {
		return fill(option.Value, nil, depth+1)
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Type.Is("string"):
		return map[string]string{"date-time": "2026-01-01T00:00:00Z", "uri": "https://example.com/x", "email": "x@example.com", "date": "2026-01-01"}[s.Format]
	case s.Type.Is("integer"), s.Type.Is("number"):
		return 1
	case s.Type.Is("boolean"):
		return false
	case s.Type.Is("array"):
		return []any{}
	}
	return map[string]any{}
}

// collect gathers the properties of a schema and of those it is made of: of a choice, the first
// that has all the names that are said.
func collect(s *openapi3.Schema, say any, props openapi3.Schemas, required *[]string) {
	maps.Copy(props, s.Properties)
	*required = append(*required, s.Required...)
	for _, a := range s.AllOf {
		collect(a.Value, say, props, required)
	}
	over, ok := say.(map[string]any)
	for i, choice := range append(slices.Clone(s.OneOf), s.AnyOf...) {
		p, r := openapi3.Schemas{}, []string{}
		collect(choice.Value, say, p, &r)
		fits := ok && len(p) > 0
		for name := range over {
			_, has := p[name]
			fits = fits && has
		}
		if fits || !ok && i == 0 && len(p) > 0 {
			maps.Copy(props, p)
			*required = append(*required, r...)
			return
		}
	}
}
