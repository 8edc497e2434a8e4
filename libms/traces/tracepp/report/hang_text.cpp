// Implements hang.h's text for a terminal, and the names of its enums.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "tracepp/hang/hang.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kWidth = 100;
constexpr int kRows = 8;      // of the grid
constexpr int kColumns = 64;  // of the grid; more ranks than that share a cell

template <std::size_t N, typename E>
std::string_view name_of(const std::array<std::string_view, N>& names, E value) {
  const auto i = static_cast<std::size_t>(value);
  return i < N ? names[i] : "?";
}

char mark_of(Cell cell) {
  switch (cell) {
    case Cell::fine: return '.';
    case Cell::waiting: return 'w';
    case Cell::suspect: return 'X';
    case Cell::no_trace: return '?';
  }
  return ' ';
}

// Orders the marks of ranks that share a cell: the worst is shown.
int badness(Cell cell) {
  return cell == Cell::suspect ? 3 : cell == Cell::no_trace ? 2 : cell == Cell::waiting ? 1 : 0;
}

std::string grid(const Hang& hang, const mesh::Mesh& mesh) {
  const int rows = std::min(mesh.pp, kRows), columns = std::min(mesh.dp, kColumns);
  std::string text = fmt::format("  rows pp 0-{}, columns dp 0-{}; X suspect, w waits, . neither, ? no trace\n",
                                 mesh.pp - 1, mesh.dp - 1);
  std::vector<Cell> cells(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns), Cell::fine);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const mesh::Coord at = mesh.coord(rank);
    const auto row = static_cast<std::int64_t>(at.pp) * rows / mesh.pp,
               column = static_cast<std::int64_t>(at.dp) * columns / mesh.dp;
    Cell& shown = cells[static_cast<std::size_t>(row * columns + column)];
    const Cell cell = hang.cells[static_cast<std::size_t>(rank)];
    if (badness(cell) > badness(shown)) shown = cell;
  }
  for (int row = 0; row < rows; ++row) {
    text += "  ";
    for (int column = 0; column < columns; ++column)
      text += mark_of(
          cells[static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(column)]);
    text += '\n';
  }
  return text;
}

std::string suspects_text(const Hang& hang, const RunTrace& trace) {
  constexpr std::size_t kShown = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(hang.suspects.size(), kShown); ++i) {
    const HangSuspect& it = hang.suspects[i];
    text += fmt::format("  suspect {:.0f} %: {}", it.confidence * 100,
                        it.rank < 0 ? fmt::format("process {}", it.pid) : rank_name(trace, it.rank));
    if (trace.has_mesh) text += fmt::format(" dp {} pp {} tp {}", it.at.dp, it.at.pp, it.at.tp);
    if (!it.host.empty()) text += " " + plain_text(it.host, 60);
    text += fmt::format(": {}\n", to_string(it.reason));
  }
  if (hang.suspects.size() > kShown)
    text += fmt::format("  and {}\n", plural(hang.suspects.size() - kShown, "further suspect"));
  return text;
}

std::string sources_text(const Hang& hang) {
  std::string text;
  if (hang.sources.size() > 1)  // the sentence of one is the answer
    for (const HangSource& source : hang.sources)
      text += fmt::format("  {} ({}): {}\n", source.name, to_string(source.stance),
                          plain_text(source.sentence, 2 * kWidth));
  if (!hang.collect.empty()) text += fmt::format("  next, collect {}\n", hang.collect);
  return text;
}

// Returns how to inspect the suspect while the run is alive.
std::string look_at(const HangSuspect& it) {
  return fmt::format(
      "  it still runs: on {}, gdb -p {} -batch -ex 'thread apply all bt' shows where rank {} stands; ms-diag run "
      "tests "
      "the node\n",
      it.host.empty() ? "its node" : plain_text(it.host, 60), it.pid, it.rank);
}

}  // namespace

std::string_view to_string(RunState state) {
  return name_of<6>({"hang", "failed", "ended", "killed", "cut_off", "unknown"}, state);
}

std::string_view to_string(Match match) {
  return name_of<6>({"fully_matched", "collective_type_mismatch", "size_or_syntax_mismatch",
                     "collective_state_mismatch", "collective_dtype_mismatch", "undecided"},
                    match);
}

std::string_view to_string(Stance stance) { return name_of<3>({"silent", "agrees", "differs"}, stance); }

std::string_view to_string(Progress progress) {
  return name_of<5>({"no trace", "not issued", "issued", "ready", "ended"}, progress);
}

std::string_view to_string(Reason reason) {
  return name_of<16>(
      {"no_trace", "failed", "silent", "left", "compute", "data_wait", "save", "not_issuing", "missing_call",
       "extra_call", "wrong_kind", "wrong_size", "wrong_dtype", "wrong_order", "transfer", "waits_alone"},
      reason);
}

std::string_view to_string(FaultDomain domain) {
  return name_of<5>({"unknown", "host", "network", "program", "device"}, domain);
}

std::string hang_text(const Hang& hang, const RunTrace& trace) {
  std::string text, problems;
  for (const auto& [problem, count] : trace.problems)
    problems += fmt::format("  {}: {}\n", plain_text(problem, kWidth), count);
  for (const std::string& line : wrap(hang.sentence, kWidth)) text += line + "\n";
  const bool is_bad = hang.state == RunState::hang || hang.state == RunState::failed;
  if (is_bad || !hang.sources.empty()) text += suspects_text(hang, trace);
  text += sources_text(hang);
  if (!is_bad) return text + problems;
  if (hang.state == RunState::hang && hang.is_alive && !hang.suspects.empty() && hang.suspects.front().pid > 0)
    text += look_at(hang.suspects.front());
  for (const std::string& line : hang.evidence) text += "  " + plain_text(line, 2 * kWidth) + "\n";
  if (!hang.cells.empty()) text += grid(hang, trace.mesh);
  return text + problems;
}

}  // namespace ms::tracepp
