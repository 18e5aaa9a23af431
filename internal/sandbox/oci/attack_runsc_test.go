package oci_test

import (
	"testing"

	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
)

func underRunsc(t testing.TB) func(*oci.Config) {
	t.Skip("not exercised: no runsc")
	return nil
}
