// Implements export_csv of export.h.
#include <fmt/format.h>

#include "tracepp/export/export.h"
#include "tracepp/export/file.h"

namespace ms::tracepp {
namespace {

// Quoted only where it has to be, as RFC 4180 says. What a spreadsheet would take for a formula gets a quote before it.
std::string field(std::string_view text) {
  std::string safe(text);
  if (!safe.empty() && std::string_view("=+-@\t\r").find(safe[0]) != std::string_view::npos) safe.insert(0, "'");
  if (safe.find_first_of(std::string_view(",\"\r\n\0", 5)) == std::string::npos) return safe;
  std::string quoted = "\"";
  for (const char c : safe) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted += '"';
}

void add_int(std::string& text, std::int64_t value, bool known = true) {
  if (known) {
    const fmt::format_int digits(value);
    text.append(digits.data(), digits.size());
  }
  text += ',';
}

std::string_view to_string(State state) {
  switch (state) {
    case State::issued: return "issued";
    case State::begun: return "begun";
    case State::ended: break;
  }
  return "ended";
}

}  // namespace

void export_csv(const RunTrace& trace, const std::string& path, const ExportOptions& options) {
  ExportFile file(path);
  std::string& text = file.text();
  text +=
      "rank,dp,pp,tp,host,step,kind,purpose,chunk,microbatch,group,sequence,bytes,state,begin_ns,duration_ns,name\r\n";
  // The columns that an EventInfo determines: all but microbatch and sequence.
  struct Columns {
    std::string before, group, bytes, name;
    bool is_comm;
  };
  std::vector<Columns> columns;
  for (const EventInfo& info : trace.infos) {
    Columns& of = columns.emplace_back();
    of.before = fmt::format("{},{},", trace::to_string(info.kind), trace::to_string(info.purpose));
    if (info.chunk >= 0) of.before += fmt::format("{}", info.chunk);
    of.before += ',';
    if (info.group >= 0) of.group = field(trace.groups[static_cast<std::size_t>(info.group)].name);
    of.group += ',';
    if (info.size_bytes >= 0) of.bytes = fmt::format("{}", info.size_bytes);
    of.bytes += ',';
    of.name = field(trace.strings.text(info.name));
    of.is_comm = trace::is_comm(info.kind);
  }
  for (const RankTrace& rank : trace.ranks) {
    if (!options.has_rank(rank.rank)) continue;
    const std::string head =
        trace.has_mesh ? fmt::format("{},{},{},{},{},", rank.rank, rank.at.dp, rank.at.pp, rank.at.tp, field(rank.host))
                       : fmt::format("{},,,,{},", rank.rank, field(rank.host));
    for (const Event& event : rank.events) {
      if (!options.has_step(event.step)) continue;
      const Columns& of = columns[event.info];
      text += head;
      add_int(text, event.step, event.step != kNoStep);
      text += of.before;
      add_int(text, event.microbatch, event.microbatch != kNoMicrobatch);
      text += of.group;
      add_int(text, event.detail, of.is_comm && event.detail != kNoDetail);
      text += of.bytes;
      text += to_string(event.state);
      text += ',';
      add_int(text, event.begin_ns, event.state != State::issued);
      add_int(text, event.duration_ns, event.state == State::ended);
      text += of.name;
      text += "\r\n";
      file.flush();
    }
  }
  file.commit();
}

}  // namespace ms::tracepp
