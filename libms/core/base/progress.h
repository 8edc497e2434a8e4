// Shows on standard error how far long work has come: on a terminal one line with a bar, redrawn; anywhere else plain
// lines at a bounded rate. Owned and called by one thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace ms {

struct ProgressOptions {
  std::FILE* stream = stderr;
  bool terminal = false;
  std::size_t width = 80;       // of the terminal
  double redraw_every_s = 0.1;  // on a terminal
  double line_every_s = 10;     // elsewhere
};

// Asks the system about standard error: is it a terminal, and how wide?
ProgressOptions progress_options();

class Progress {
 public:
  // `total` in any unit of work; 0: not known, no bar. `unit` is shown behind the numbers ("files", "tokens").
  Progress(std::string label, std::int64_t total, std::string unit, Clock& clock,
           ProgressOptions options = progress_options());
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // without finish() the work was given up: wipes the bar, says nothing

  // `note` is a few words about now ("loss 3.21"). Cheap: draws only when it is time.
  void update(std::int64_t done, std::string_view note = {});
  // The last state, always drawn, as a line that stays.
  void finish(std::string_view note = {});

 private:
  std::string text(std::string_view note) const;  // "read: 3.00k of 10.0k tokens, 30%, 1.50k/s, 5.0s left, note"
  void draw(std::string_view note, bool last);

  std::string label_;
  std::int64_t total_;
  std::string unit_;
  Clock& clock_;
  ProgressOptions options_;
  double start_s_;
  double drawn_s_;
  std::int64_t done_ = 0;
  bool bar_shown_ = false;
};

}  // namespace ms
