// Implements export_chrome of export.h.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/escape.h"
#include "tracepp/export/export.h"
#include "tracepp/export/file.h"
#include "tracepp/export/lanes.h"
#include "tracepp/read/trace_names.h"

namespace ms::tracepp {
namespace {

// As JSON has it, quotes and all. '<' too, so that it may stand in a web page; what is no UTF-8 becomes '?'.
std::string json_string(std::string_view text) {
  std::string json = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '"' || byte == '\\') {
      json += '\\';
      json += text[i];
    } else if (byte < 0x20 || byte == 0x7f || byte == '<') {
      json += fmt::format("\\u{:04x}", byte);
    } else if (byte < 0x80) {
      json += text[i];
    } else {
      const std::size_t bytes = utf8_bytes(text.substr(i));
      if (bytes == 0) {
        json += '?';
      } else {
        json += text.substr(i, bytes);
        i += bytes - 1;
      }
    }
  }
  return json += '"';
}

void add_int(std::string& text, std::int64_t value) {
  const fmt::format_int digits(value);
  text.append(digits.data(), digits.size());
}

// Microseconds with three decimals.
void add_us(std::string& text, std::int64_t ns) {
  const bool negative = ns < 0;
  const auto value = negative ? -static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  if (negative) text += '-';
  const fmt::format_int digits(value / 1000);
  text.append(digits.data(), digits.size());
  const auto part = static_cast<unsigned>(value % 1000);
  const char decimals[4] = {'.', static_cast<char>('0' + part / 100), static_cast<char>('0' + part / 10 % 10),
                            static_cast<char>('0' + part % 10)};
  text.append(decimals, 4);
}

class Writer {
 public:
  Writer(const RunTrace& trace, const std::string& path, const ExportOptions& options)
      : trace_(trace), options_(options), file_(path), text_(file_.text()), arrows_(trace) {
    for (const RankTrace& rank : trace.ranks) {
      for (const Event& event : rank.events) {
        if (event.state != State::issued) origin_ns_ = std::min(origin_ns_, event.begin_ns);
      }
    }
    if (origin_ns_ == std::numeric_limits<std::int64_t>::max()) origin_ns_ = 0;
    for (const EventInfo& info : trace.infos) {
      heads_.push_back(fmt::format(",\"cat\":\"{}\",\"name\":{}", trace::to_string(info.kind),
                                   json_string(name_of(trace, info, kNoMicrobatch))));
      std::string args;
      if (info.group >= 0)
        args += fmt::format(",\"group\":{}", json_string(trace.groups[static_cast<std::size_t>(info.group)].name));
      if (info.size_bytes >= 0) args += fmt::format(",\"bytes\":{}", info.size_bytes);
      if (info.type != 0) args += fmt::format(",\"type\":{}", json_string(trace.strings.text(info.type)));
      if (info.purpose != Purpose::none) args += fmt::format(",\"purpose\":\"{}\"", trace::to_string(info.purpose));
      if (info.chunk >= 0) args += fmt::format(",\"chunk\":{}", info.chunk);
      args_.push_back(std::move(args));
    }
  }

  void write() {
    // Times are counted from the first event, so that they keep their nanoseconds as doubles.
    text_ += fmt::format(
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"writer\":{}}},\"baseTimeNanoseconds\":{},\"traceEvents\":[",
        json_string(kExportWriter), wall_ns(origin_ns_));
    for (const RankTrace& rank : trace_.ranks) {
      if (options_.has_rank(rank.rank)) write_rank(rank);
    }
    text_ += "\n]}\n";
    file_.commit();
  }

 private:
  // By the wall clock, where that is known of the first rank, whose clock the run's is.
  std::int64_t wall_ns(std::int64_t time_ns) const {
    const bool known = !trace_.ranks.empty() && trace_.ranks.front().realtime_ns != 0;
    return known ? time_ns + trace_.ranks.front().realtime_ns - trace_.ranks.front().clock_ns : time_ns;
  }

  void begin_event(char phase, int pid, std::uint32_t tid) {
    text_ += first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
    first_ = false;
    text_ += phase;
    text_ += "\",\"pid\":";
    add_int(text_, pid);
    text_ += ",\"tid\":";
    add_int(text_, tid);
  }

  void write_metadata(int pid, std::uint32_t tid, std::string_view name, const std::string& args) {
    begin_event('M', pid, tid);
    text_ += fmt::format(",\"name\":\"{}\",\"args\":{{{}}}}}", name, args);
  }

  void write_rank(const RankTrace& rank) {
    const RankPicture picture = picture_of(trace_, rank, options_);
    write_metadata(rank.rank, 0, "process_name", "\"name\":" + json_string(title_of(trace_, rank)));
    write_metadata(rank.rank, 0, "process_sort_index", fmt::format("\"sort_index\":{}", rank.rank));
    for (std::uint32_t tid = 0; tid < picture.tracks.size(); ++tid) {
      const Track& track = picture.tracks[tid];
      write_metadata(rank.rank, tid, "thread_name", "\"name\":" + json_string(track.name));
      write_metadata(rank.rank, tid, "thread_sort_index", fmt::format("\"sort_index\":{}", track.order));
    }
    for (const Placed& placed : picture.events) {
      write_event(rank, placed);
      file_.flush();
    }
  }

  void write_event(const RankTrace& rank, const Placed& placed) {
    const Event& event = *placed.event;
    const EventInfo& info = trace_.info(event);
    const bool is_issued = event.state == State::issued;
    const std::int64_t begin_ns = (is_issued ? rank.last_flush_ns : event.begin_ns) - origin_ns_;
    begin_event(is_issued ? 'i' : event.state == State::begun ? 'B' : 'X', rank.rank, placed.track);
    text_ += ",\"ts\":";
    add_us(text_, begin_ns);
    if (event.state == State::ended) {
      text_ += ",\"dur\":";
      add_us(text_, event.duration_ns);
    }
    if (is_issued) text_ += ",\"s\":\"t\"";
    text_ += heads_[event.info];
    text_ += ",\"args\":{\"step\":";
    add_int(text_, event.step);
    if (event.microbatch != kNoMicrobatch) {
      text_ += ",\"microbatch\":";
      add_int(text_, event.microbatch);
    }
    if (trace::is_comm(info.kind) && event.detail != kNoDetail) {
      text_ += ",\"sequence\":";
      add_int(text_, event.detail);
    }
    text_ += args_[event.info];
    if (event.state != State::ended) text_ += is_issued ? ",\"state\":\"issued\"" : ",\"state\":\"begun\"";
    text_ += "}}";
    const std::uint64_t arrow = arrows_.of(info, event);
    if (arrow == 0) return;
    // Perfetto takes the slice that begins first for the source of an arrow, and most receives begin before their send:
    // an arrow leads to an instant, in the last nanosecond of the receive. After it, the next slice may have begun.
    const bool is_send = info.kind == Kind::send;
    const std::int64_t time_ns = is_send ? begin_ns : begin_ns + std::max(event.duration_ns - 1, std::int64_t{0});
    if (!is_send) {
      begin_event('i', rank.rank, placed.track);
      text_ += ",\"ts\":";
      add_us(text_, time_ns);
      text_ += ",\"s\":\"t\",\"cat\":\"message\",\"name\":\"arrived\"}";
    }
    begin_event(is_send ? 's' : 'f', rank.rank, placed.track);
    text_ += ",\"ts\":";
    add_us(text_, time_ns);
    text_ += is_send ? ",\"cat\":\"message\",\"name\":\"message\",\"id\":"
                     : ",\"bp\":\"e\",\"cat\":\"message\",\"name\":\"message\",\"id\":";
    text_ += fmt::format("\"{:x}\"}}", arrow);
  }

  const RunTrace& trace_;
  const ExportOptions& options_;
  ExportFile file_;
  std::string& text_;
  Arrows arrows_;
  std::int64_t origin_ns_ = std::numeric_limits<std::int64_t>::max();
  std::vector<std::string> heads_, args_;  // [info]: the text that all its events share
  bool first_ = true;
};

}  // namespace

void export_chrome(const RunTrace& trace, const std::string& path, const ExportOptions& options) {
  Writer(trace, path, options).write();
}

}  // namespace ms::tracepp
