package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCacheAndWarm(t *testing.T) {
	load := func(text string) (Config, error) {
		p := filepath.Join(t.TempDir(), "daybreak.yaml")
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Load(p)
	}
	c, err := load("cache: {disk: 2GB, unused: 1h}\nserve: {warm: {count: 0}}\n")
	if err != nil || c.Cache.Disk != 2e9 || c.Cache.Unused != time.Hour || c.Serve.Warm.Count != 0 || c.Serve.Warm.Idle != 15*time.Minute {
		t.Errorf("%+v %+v %v", c.Cache, c.Serve.Warm, err)
	}
	for text, want := range map[string]string{
		"cache: {unused: -1h}":         "cache.unused",
		"serve: {warm: {count: -1}}":   "serve.warm.count",
		"serve: {warm: {count: 1000}}": "serve.warm.count",
		"serve: {warm: {idle: 0s}}":    "serve.warm.idle",
	} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
