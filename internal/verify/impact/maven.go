package impact

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
)

// pom is what is read of a pom.xml.
type pom struct {
	artifact string
	named    []string // every artifact that it names: parent, dependencies, plugins
	modules  []string
	profile  bool // some of the modules are a profile's
}

// Maven reads the poms of the project at dir and of its modules. Whatever artifact of the build a
// pom names, it needs, in a profile or not.
func Maven(t Tree, dir string) Build {
	b := Build{whole: func(f string) bool {
		return path.Base(f) == "pom.xml" || strings.Contains("/"+f, "/.mvn/") || strings.HasPrefix(path.Base(f), "mvnw")
	}}
	var poms []pom
	at := map[string]bool{}
	todo := []string{dir}
	for len(todo) > 0 {
		d := todo[0]
		todo = todo[1:]
		if at[d] {
			continue // modules may name each other
		}
		at[d] = true
		f := path.Join(d, "pom.xml")
		text := t.Read(f)
		if len(text) == 0 || len(text) > maxBuild || len(poms) == maxParts {
			return unknown(f + " is missing or too large")
		}
		p, err := readPom(text)
		if err != nil {
			return unknown(f + " cannot be read: " + err.Error())
		}
		if p.profile {
			return unknown(f + " has modules in a profile, and whether that is active is not known")
		}
		poms = append(poms, p)
		b.Parts = append(b.Parts, Part{Name: p.artifact, Dir: d, Tested: true})
		for _, m := range p.modules {
			to, ok := inside(d, m)
			if !ok || strings.HasSuffix(m, ".xml") || strings.Contains(m, "$") {
				return unknown(f + " has the module " + m + ", which is not understood")
			}
			todo = append(todo, to)
		}
	}
	names := b.names()
	for name, parts := range names {
		if len(parts) > 1 {
			return unknown("two modules are named " + name)
		}
	}
	for i, p := range poms {
		for _, name := range p.named {
			if strings.Contains(name, "${") {
				return unknown(path.Join(b.Parts[i].Dir, "pom.xml") + " names " + name + ", which is not resolved")
			}
			for _, to := range names[name] {
				b.need(i, to)
			}
		}
	}
	b.reads(t, []string{".java", ".kt", ".scala", ".groovy", ".xml", ".properties"})
	return b
}

// readPom walks the tokens: entities and what stands beyond them are not followed.
func readPom(text []byte) (p pom, err error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil } // names are ASCII
	var open []string
	var value strings.Builder
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			if p.artifact == "" {
				return p, errors.New("it names no artifact")
			}
			return p, nil
		}
		if err != nil {
			return p, errors.New("its XML is not whole")
		}
		switch tok := tok.(type) {
		case xml.Directive:
			return p, errors.New("it has a document type")
		case xml.StartElement:
			if len(open) > 100 {
				return p, errors.New("it is too deep")
			}
			open = append(open, tok.Name.Local)
			value.Reset()
		case xml.CharData:
			value.Write(tok)
		case xml.EndElement:
			text := strings.TrimSpace(value.String())
			value.Reset()
			p.element(open, text)
			open = open[:len(open)-1]
		}
	}
}

func (p *pom) element(open []string, text string) {
	switch at := strings.Join(open, "/"); {
	case at == "project/artifactId":
		p.artifact = text
	case open[len(open)-1] == "artifactId":
		p.named = append(p.named, text)
	case at == "project/modules/module", at == "project/subprojects/subproject":
		p.modules = append(p.modules, text)
	case slices.Contains([]string{"module", "subproject"}, open[len(open)-1]) && strings.HasPrefix(at, "project/profiles/profile/"):
		p.profile = true
	}
}
