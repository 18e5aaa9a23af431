package lockfile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const pom = `<project><parent><groupId>org.top</groupId><artifactId>top</artifactId><version>3</version></parent>
<dependencies><dependency><groupId>org.a</groupId><artifactId>a</artifactId><version>${v}</version></dependency></dependencies>
<build><plugins><plugin><artifactId>maven-jar-plugin</artifactId><version>3.4.1</version><dependencies><dependency><groupId>org.b</groupId><artifactId>b</artifactId><version>2</version></dependency></dependencies><configuration><artifactId>no</artifactId></configuration></plugin></plugins></build></project>`

func TestKnown(t *testing.T) {
	alias := strings.Replace(npmBase, `"node_modules/a":{`, `"node_modules/short":{`, 1)
	for _, c := range []struct{ path, text, eco, names, versions string }{
		{"go.sum", "ex.test/a v1.0.0 " + h1 + "\nex.test/a v1.0.0/go.mod " + h2 + "\n", "go", "ex.test/a", "ex.test/a@v1.0.0"},
		{"go.mod", "module m\n\nrequire ex.test/a v1.0.0\nreplace ex.test/a => ex.test/fork v1.2.0\n", "go", "ex.test/a ex.test/fork", "ex.test/a@v1.0.0 ex.test/fork@v1.2.0"},
		{"go.mod", "module m\n\nreplace ex.test/a => ../a\n", "go", "", ""},
		{"sub/package-lock.json", npmBase, "npm", "@s/b a", "@s/b@2.0.0 a@1.0.0"},
		{"package-lock.json", alias, "npm", "@s/b a short", "@s/b@2.0.0 a@1.0.0 short@1.0.0"},
		{"package-lock.json", npmOld, "npm", "a b", "a@1.0.0 b@2.0.0"},
		{"yarn.lock", yarn1, "npm", "@s/b a", "@s/b@2.1.0 a@1.0.0"},
		{"yarn.lock", yarn2, "npm", "a", "a@1.0.0"},
		{"pnpm-lock.yaml", pnpm, "npm", "a b", "a@1.0.0 b@2.0.0"},
		{"pnpm-lock.yaml", "packages:\n  /@s/a/1.0.0_p@2:\n    resolution: {integrity: x}\n", "npm", "@s/a", "@s/a@1.0.0"},
		{"pnpm-lock.yaml", "packages:\n  '@s/a@1.0.0(b@2.0.0)':\n    resolution: {integrity: x}\n  /c/3.0.0:\n    resolution: {integrity: x}\n", "npm", "@s/a c", "@s/a@1.0.0 c@3.0.0"},
		{"Cargo.lock", strings.ReplaceAll(cargo, `name = "a"`, `name = "Aa"`), "crates", "aa", "aa@1.0.0"},
		{"poetry.lock", strings.ReplaceAll(poetry, `name = "a"`, `name = "A__b.c"`), "pypi", "a-b-c", "a-b-c@1.0.0"},
		{"uv.lock", uv, "pypi", "a", "a@1.0.0"},
		{"requirements.txt", reqs, "pypi", "a b", "a@1.0.0 b@2.0"},
		{"requirements.txt", "a>=1,<2\n", "pypi", "a", ""},
		{"pom.xml", pom, "maven", "org.a:a org.apache.maven.plugins:maven-jar-plugin org.b:b org.top:top", "org.apache.maven.plugins:maven-jar-plugin@3.4.1 org.b:b@2 org.top:top@3"},
		{"gradle.lockfile", "# a comment\norg.a:a:1.0=compileClasspath,x\nempty=annotationProcessor\n", "maven", "org.a:a", "org.a:a@1.0"},
		{"package-lock.json", "{", "npm", "", ""},
		{"pom.xml", "<project><dependency><groupId>a b</groupId><artifactId>x</artifactId></dependency><", "maven", "", ""},
		{"main.go", "package main", "go", "", ""},
	} {
		var k Known
		k.Add(c.path, []byte(c.text))
		k.Add(c.path, []byte(c.text))
		k.Done()
		if d := cmp.Diff(c.names, strings.Join(k.Names[c.eco], " ")); d != "" {
			t.Errorf("%s: names %s", c.path, d)
		}
		if d := cmp.Diff(c.versions, strings.Join(k.Versions[c.eco], " ")); d != "" {
			t.Errorf("%s: versions %s", c.path, d)
		}
		if c.names != "" && !Names(c.path) {
			t.Errorf("%s is not taken for a file with names", c.path)
		}
	}
	var k Known
	k.Add("go.sum", []byte("ex.test/a v1.0.0 "+h1+"\nex.test/a v1.0.0/go.mod "+h2+"\n"))
	if k.GoSum["ex.test/a v1.0.0"] != h1 || k.GoSum["ex.test/a v1.0.0/go.mod"] != h2 {
		t.Errorf("%v", k.GoSum)
	}
}

func FuzzKnown(f *testing.F) {
	names := []string{"go.sum", "go.mod", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "Cargo.lock", "poetry.lock", "uv.lock", "requirements.txt", "pom.xml", "gradle.lockfile"}
	for i, s := range []string{"a v1 " + h1, "module m", npmBase, yarn1, pnpm, cargo, poetry, uv, reqs, pom, "a:b:1=c"} {
		f.Add(i, []byte(s))
	}
	f.Fuzz(func(t *testing.T, i int, b []byte) {
		var k Known
		k.Add(names[uint(i)%uint(len(names))], b)
		k.Done()
		for eco, list := range k.Names {
			for _, n := range list {
				if n == "" || len(n) > 256 {
					t.Fatalf("%s: a name of %d bytes", eco, len(n))
				}
			}
		}
	})
}
