#include "base/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/escape.h"
#include "base/log.h"
#include "base/text.h"

namespace ms {

ProgressOptions progress_options() {
  ProgressOptions options;
  const char* term = std::getenv("TERM");
  options.terminal = ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
  winsize size{};
  if (options.terminal && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    options.width = size.ws_col;
  return options;
}

Progress::Progress(std::string label, std::int64_t total, std::string unit, Clock& clock, ProgressOptions options)
    : label_(std::move(label)),
      total_(total),
      unit_(std::move(unit)),
      clock_(clock),
      options_(options),
      start_s_(clock.now_s()),
      drawn_s_(start_s_) {}

Progress::~Progress() {
  if (!bar_shown_) return;
  std::fputs("\r\033[K", options_.stream);
  std::fflush(options_.stream);
  log::set_bar_on_terminal(false);
}

void Progress::update(std::int64_t done, std::string_view note) {
  done_ = done;
  const double now_s = clock_.now_s();
  if (now_s - drawn_s_ < (options_.terminal ? options_.redraw_every_s : options_.line_every_s)) return;
  drawn_s_ = now_s;
  draw(note, false);
}

void Progress::finish(std::string_view note) {
  if (total_ > 0) done_ = total_;
  draw(note, true);
}

std::string Progress::text(std::string_view note) const {
  const double elapsed_s = clock_.now_s() - start_s_;
  const double rate = elapsed_s > 0 ? static_cast<double>(done_) / elapsed_s : 0;
  std::string text = label_ + ": " + format_count(static_cast<double>(done_));
  if (total_ > 0) text += " of " + format_count(static_cast<double>(total_));
  text += " " + unit_;
  if (total_ > 0) text += fmt::format(", {}%", 100 * done_ / total_);
  if (rate > 0) text += fmt::format(", {}/s", format_count(rate));
  if (done_ >= total_) {
    text += fmt::format(", {}", format_duration(elapsed_s));
  } else if (rate > 0) {
    text += fmt::format(", {} left", format_duration(static_cast<double>(total_ - done_) / rate));
  }
  if (!note.empty()) text += fmt::format(", {}", note);
  return text;
}

void Progress::draw(std::string_view note, bool last) {
  std::string line = safe_line(text(note));
  if (!options_.terminal || last) {
    if (bar_shown_) line = "\r\033[K" + line;
    line += "\n";
  } else {
    constexpr std::size_t kBarMin = 8;
    constexpr std::size_t kBarMax = 30;
    const std::size_t width = options_.width > 1 ? options_.width - 1 : 1;  // the last column would wrap
    if (total_ > 0 && line.size() + kBarMin + 3 <= width) {
      const std::size_t cells = std::min(kBarMax, width - line.size() - 3);
      const double part = std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
      const auto full = static_cast<std::size_t>(part * static_cast<double>(cells));
      line = fmt::format("[{}{}] {}", std::string(full, '#'), std::string(cells - full, ' '), line);
    }
    line = "\r" + line.substr(0, width) + "\033[K";
  }
  const bool bar = options_.terminal && !last;
  if (bar != bar_shown_ && !bar) log::set_bar_on_terminal(false);
  std::fputs(line.c_str(), options_.stream);
  std::fflush(options_.stream);
  if (bar != bar_shown_ && bar) log::set_bar_on_terminal(true);
  bar_shown_ = bar;
}

}  // namespace ms
