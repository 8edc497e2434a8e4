#include "sched/csv.h"

#include <array>
#include <charconv>
#include <optional>

#include "base/error.h"

namespace ms::sched {
namespace {

struct Code {
  std::string_view letters;
  Action action;
  bool has_microbatch;
};
// Longer codes first: "RF" must not be read as an unknown "R".
constexpr std::array<Code, 10> kCodes{{
    {"RF", Action::recv_forward, true},
    {"SF", Action::send_forward, true},
    {"RB", Action::recv_backward, true},
    {"SB", Action::send_backward, true},
    {"F", Action::forward, true},
    {"B", Action::backward, true},
    {"I", Action::backward_input, true},
    {"W", Action::backward_weight, true},
    {"G", Action::gather_params, false},
    {"D", Action::reduce_grads, false},
}};

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const auto begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Everything up to `separator`, which is taken off the front of `rest` together with it.
std::string_view next(std::string_view& rest, char separator) {
  const auto end = rest.find(separator);
  const std::string_view head = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  return head;
}

// A number from the front of `text`, digits only.
std::optional<int> number(std::string_view& text) {
  int value = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<Row> parse_cell(std::string_view text) {
  for (const Code& code : kCodes) {
    if (!text.starts_with(code.letters)) continue;
    text.remove_prefix(code.letters.size());
    Row row{.action = code.action};
    const auto chunk = number(text);
    if (!chunk) return std::nullopt;
    row.chunk = *chunk;
    if (code.has_microbatch) {
      if (!text.starts_with('.')) return std::nullopt;
      text.remove_prefix(1);
      const auto microbatch = number(text);
      if (!microbatch) return std::nullopt;
      row.microbatch = *microbatch;
    }
    if (!text.empty()) return std::nullopt;
    return row;
  }
  return std::nullopt;
}

}  // namespace

std::string to_csv(const Schedule& schedule) {
  const Shape& shape = schedule.shape;
  std::string text = fmt::format("# ms schedule 1: pp {}, chunks {}, microbatches {}, {}\n", shape.pp, shape.chunks,
                                 shape.microbatches, shape.training ? "training" : "forward only");
  for (const std::vector<Row>& rows : schedule.rows) {
    std::string_view separator;
    for (const Row& row : rows) {
      text.append(separator).append(cell(row));
      separator = ",";
    }
    text += '\n';
  }
  return text;
}

Schedule parse_csv(std::string_view text, std::string_view name, const Shape& shape) {
  Schedule schedule{.shape = shape, .rows = {}, .slots = {}};
  int line_number = 0;
  while (!text.empty()) {
    const std::string_view line = trim(next(text, '\n'));
    ++line_number;
    if (line.empty() || line.front() == '#') continue;
    if (std::ssize(schedule.rows) == shape.pp) {
      throw user_error("sched.csv", fmt::format("{}:{}: the schedule has more lines than the {} pp ranks", name,
                                                line_number, shape.pp));
    }
    std::vector<Row>& rows = schedule.rows.emplace_back();
    std::string_view rest = line;
    for (int cell_number = 1;; ++cell_number) {
      const bool last = rest.find(',') == std::string_view::npos;
      const std::string_view content = trim(next(rest, ','));
      const auto refuse = [&](std::string_view why) {
        return user_error("sched.csv",
                          fmt::format("{}:{}: cell {} '{}' {}", name, line_number, cell_number, content, why));
      };
      const auto row = parse_cell(content);
      if (!row) throw refuse("is not one of F0.0 B0.0 I0.0 W0.0 RF0.0 SF0.0 RB0.0 SB0.0 G0 D0");
      if (row->chunk >= shape.chunks) throw refuse(fmt::format("names a chunk beyond the {} of the run", shape.chunks));
      if (row->microbatch >= shape.microbatches) {
        throw refuse(fmt::format("names a microbatch beyond the {} of the run", shape.microbatches));
      }
      rows.push_back(*row);
      if (last) break;
    }
  }
  if (std::ssize(schedule.rows) != shape.pp) {
    throw user_error("sched.csv", fmt::format("{}: the schedule has {} lines for {} pp ranks", name,
                                              schedule.rows.size(), shape.pp));
  }
  assign_slots(schedule);
  return schedule;
}

}  // namespace ms::sched
