package setup

import (
	"bytes"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
)

// devcontainerJSON is what of the format (containers.dev, devcontainer.json reference) has a
// meaning here.
type devcontainerJSON struct {
	OnCreate      command           `json:"onCreateCommand"`
	UpdateContent command           `json:"updateContentCommand"`
	PostCreate    command           `json:"postCreateCommand"`
	ContainerEnv  map[string]string `json:"containerEnv"`
	RemoteEnv     map[string]any    `json:"remoteEnv"`
}

// notHonoured are keys that ask for another machine than this one.
var notHonoured = []string{"image", "build", "dockerFile", "dockerComposeFile", "features", "mounts", "runArgs", "initializeCommand", "workspaceFolder", "workspaceMount", "containerUser", "privileged"}

// command is a shell line, a list of words, or an object of named ones.
type command []string

// UnmarshalJSON implements json.Unmarshaler.
func (c *command) UnmarshalJSON(b []byte) error {
	var line string
	var words []string
	var named map[string]json.RawMessage
	switch {
	case string(b) == "null":
	case json.Unmarshal(b, &line) == nil:
		if strings.TrimSpace(line) != "" {
			*c = append(*c, line)
		}
	case json.Unmarshal(b, &words) == nil:
		for i, w := range words {
			words[i] = quote(w)
		}
		if len(words) > 0 {
			*c = append(*c, strings.Join(words, " "))
		}
	case json.Unmarshal(b, &named) == nil:
		var names []string
		for n := range named {
			names = append(names, n)
		}
		slices.Sort(names) // they run side by side there: no order is promised
		for _, n := range names {
			var one command
			if len(named[n]) > 0 && named[n][0] == '{' {
				return errors.New("a named command holds named commands")
			}
			if err := one.UnmarshalJSON(named[n]); err != nil {
				return err
			}
			*c = append(*c, one...)
		}
	default:
		return errors.New("a command is no string, list or object")
	}
	return nil
}

const (
	maxDevcontainer = 256 << 10 // bytes
	maxNesting      = 64        // of a devcontainer.json
	maxCommand      = 8 << 10   // bytes of one command line
	maxCommands     = 20
	maxVariables    = 100
)

func (d *detector) devcontainer() {
	var found []string
	for _, f := range []string{".devcontainer/devcontainer.json", ".devcontainer.json"} {
		if d.file(f) {
			found = append(found, f)
		}
	}
	for _, f := range d.tree.Files {
		if ok, _ := path.Match(".devcontainer/*/devcontainer.json", f); ok {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return
	}
	name := found[0]
	if len(found) > 1 {
		d.note("%s is used, the other %d devcontainer.json are not", name, len(found)-1)
	}
	text := d.tree.Read(name)
	if text == nil || len(text) > maxDevcontainer {
		d.note("%s is too large to be read", name)
		return
	}
	var c devcontainerJSON
	var keys map[string]json.RawMessage
	plain, err := plainJSON(text)
	if err == nil {
		err = errors.Join(json.Unmarshal(plain, &keys), json.Unmarshal(plain, &c))
	}
	if err != nil {
		d.note("%s cannot be read: %s", name, firstLine(err.Error()))
		return
	}
	var ignored []string
	for _, k := range notHonoured {
		if _, ok := keys[k]; ok {
			ignored = append(ignored, k)
		}
	}
	if len(ignored) > 0 {
		d.note("%s: %s cannot be honoured here, the sandbox has this host's own tool chains", name, strings.Join(ignored, ", "))
	}
	env := d.variables(name, c)
	for _, stage := range []struct {
		key  string
		list command
	}{{"onCreateCommand", c.OnCreate}, {"updateContentCommand", c.UpdateContent}, {"postCreateCommand", c.PostCreate}} {
		for i, line := range stage.list {
			if i == maxCommands || len(line) > maxCommand {
				d.note("%s: %s is too long", name, stage.key)
				break
			}
			d.add("devcontainer", Step{
				Name: "devcontainer", Run: line, Dir: ".", Optional: true, Whole: true, Env: env,
				Why: stage.key + " of " + name + "; it was written for another image, so its failure is no end",
			})
		}
	}
}

// variables takes containerEnv and remoteEnv over, but for values that refer to another machine
// and names that decide which programs run.
func (d *detector) variables(name string, c devcontainerJSON) []string {
	all := map[string]string{}
	for k, v := range c.ContainerEnv {
		all[k] = v
	}
	for k, v := range c.RemoteEnv {
		if s, ok := v.(string); ok {
			all[k] = s
		}
	}
	var names, env, left []string
	for k := range all {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		v := all[k]
		switch {
		case len(env) == maxVariables || !variable(k) || strings.Contains(v, "${") || strings.ContainsAny(v, "\x00\n") || len(v) > maxCommand,
			k == "PATH", k == "HOME", strings.HasPrefix(k, "LD_"):
			left = append(left, k)
		default:
			env = append(env, k+"="+v)
		}
	}
	if len(left) > 0 {
		d.note("%s: the variables %s are not taken over", name, strings.Join(left[:min(len(left), 10)], ", "))
	}
	for _, kv := range env {
		d.env(kv)
	}
	return env
}

func variable(k string) bool {
	return k != "" && len(k) <= 128 && strings.Trim(k, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == "" && (k[0] < '0' || k[0] > '9')
}

// plainJSON takes comments and trailing commas out of JSON with comments. It fails on text that
// nests deeper than [maxNesting].
func plainJSON(b []byte) ([]byte, error) {
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	out := make([]byte, 0, len(b))
	depth := 0
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '"':
			end := i + 1
			for end < len(b) && b[end] != '"' {
				if b[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(b))
			out = append(out, b[i:end]...)
			i = end - 1
		case bytes.HasPrefix(b[i:], []byte("//")):
			n := bytes.IndexByte(b[i:], '\n')
			if n < 0 {
				return out, nil
			}
			i += n - 1
		case bytes.HasPrefix(b[i:], []byte("/*")):
			n := bytes.Index(b[i+2:], []byte("*/"))
			if n < 0 {
				return nil, errors.New("a comment does not end")
			}
			i += n + 3
		case b[i] == '{' || b[i] == '[':
			if depth++; depth > maxNesting {
				return nil, errors.New("it nests too deeply")
			}
			out = append(out, b[i])
		case b[i] == '}' || b[i] == ']':
			depth--
			if t := bytes.TrimRight(out, " \t\r\n"); len(t) > 0 && t[len(t)-1] == ',' {
				out = t[:len(t)-1]
			}
			out = append(out, b[i])
		default:
			out = append(out, b[i])
		}
	}
	return out, nil
}
