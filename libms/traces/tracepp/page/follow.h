// A run under way, whose page is made anew when its files have grown. ms-tracepp report --follow serves it. The
// functions are for any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tracepp/export/export.h"
#include "tracepp/hang/hang.h"
#include "tracepp/page/expected.h"
#include "tracepp/read/read.h"

namespace ms::tracepp {

inline constexpr double kReadingShare = 0.1;  // of the time: reading traces of many ranks loads the file system

class FollowedRun {
 public:
  // `paths`: as for named_runs(). `asked`: see report_page(). `clock` outlives it. `cluster`: the page compares with
  // what is expected there, see ExpectedStep; empty: with nothing.
  FollowedRun(std::vector<std::string> paths, ExportOptions asked, Clock& clock, std::string cluster = {});

  // Reads the run for the first time, with its progress on standard error, and has `check` see it. Before all others.
  // Throws what read_run(), `check` and ExpectedStep throw.
  void begin(const std::function<void(const RunTrace&)>& check);
  // Reads the run where its files have grown, where it says nothing for twice as long as it did when it was read, at
  // most every two seconds and at most a tenth of the time; never while no page asks. For one thread.
  void refresh();

  // The newest page.
  std::shared_ptr<const std::string> page();
  // {"version": "3", "text": "The data were read 2.1s ago ...", "bad": false}: of the page, and what its reader must
  // know; bad: the run hangs or failed, or cannot be read.
  std::string state();

 private:
  struct Read {
    std::shared_ptr<const std::string> page = {};
    std::uint64_t version = 0;
    RunState state = RunState::unknown;
    FilesSeen files = {};
    double at_s = 0, took_s = 0;  // on the clock
    double silent_s = 0;          // the age of the newest file then
    std::string problem = {};     // of the newest attempt; empty: it went well
  };
  void make_page(RunTrace& trace, const FilesSeen& files, double begin_s);
  std::string expected_html_of(const RunTrace& trace, const Analysis& analysis);
  FilesSeen look() const;
  double silent_s(const FilesSeen& files) const;
  Read newest() const;

  const std::vector<std::string> paths_;
  const ExportOptions asked_;
  Clock& clock_;
  const std::string cluster_;
  std::optional<ExpectedStep> expected_;  // for one thread
  mutable std::mutex mutex_;              // guards read_, visited_s_
  Read read_;
  double visited_s_ = 0;
  double next_look_s_ = 0;
};

}  // namespace ms::tracepp
