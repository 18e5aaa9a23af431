package config

import (
	"errors"
	"time"
)

// Cache bounds what is kept of repositories on disk: mirrors, prepared trees, dependencies.
type Cache struct {
	Disk   Size          `yaml:"disk"`   // of everything together; 0: no bound
	Unused time.Duration `yaml:"unused"` // what nobody used for so long goes; 0: nothing goes for that
}

// Warm bounds the sandboxes that the service keeps ready, each started and without a task.
type Warm struct {
	Count  int           `yaml:"count"`  // most at once in one process; 0: none
	Memory Size          `yaml:"memory"` // most that all of them may take while they wait
	Idle   time.Duration `yaml:"idle"`   // one that nobody asked for in so long is ended
}

func defaultCache() Cache { return Cache{Disk: 50 << 30, Unused: 30 * 24 * time.Hour} }

func defaultWarm() Warm { return Warm{Count: 4, Memory: 256 << 20, Idle: 15 * time.Minute} }

// maxWarm keeps a slip of the pen from filling the machine.
const maxWarm = 256

func (c Cache) check() error {
	if c.Unused < 0 {
		return errors.New("cache.unused is negative; 0 lets nothing go for not being used")
	}
	return nil
}

func (w Warm) check() error {
	switch {
	case w.Count < 0 || w.Count > maxWarm:
		return errors.New("serve.warm.count is not between 0 and 256")
	case w.Idle <= 0:
		return errors.New("serve.warm.idle is not above 0")
	}
	return nil
}
