package web

import "net/http"

func (s *Site) storybook(w http.ResponseWriter, r *http.Request) error { return nil }
