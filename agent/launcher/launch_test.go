// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

func TestTheRankThatFailedFirstIsTheCauseWhateverTheOrderOfReports(t *testing.T) {
	at := func(milliseconds int) failure { return failure{At: time.UnixMilli(int64(milliseconds))} }
	found := earliest([]report{{1, at(20)}, {2, at(10)}, {0, at(30)}})
	if found == nil || found.worker != 2 {
		t.Errorf("%+v", found)
	}
	if found := earliest(nil); found != nil {
		t.Errorf("of none it is %+v", found)
	}
}

func TestALostWorkerIsTheCauseOfItsPeersFailures(t *testing.T) {
	began := time.Now()
	found := earliest([]report{{1, failure{At: began}}, {2, failure{At: began.Add(time.Second), IsWorkerLost: true}}})
	if found == nil || found.worker != 2 {
		t.Errorf("%+v", found)
	}
}
