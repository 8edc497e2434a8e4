// Implements the texts of blame.h.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "tracepp/hang/blame.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kNameBytes = 60;  // limit for bytes of a name from a trace

std::string in_brackets(const std::string& parts) { return parts.empty() ? "" : fmt::format(" ({})", parts); }

std::string kind_label(const RunTrace& trace, const EventInfo& info) {
  const std::string_view name = trace.strings.text(info.name);
  return name.empty() ? std::string(trace::to_string(info.kind)) : plain_text(name, kNameBytes);
}

std::string group_label(const RunTrace& trace, std::int32_t group) {
  if (group < 0 || static_cast<std::size_t>(group) >= trace.groups.size()) return "";
  std::string name = plain_text(trace.groups[static_cast<std::size_t>(group)].name, kNameBytes);
  return name.starts_with("group ") ? name.substr(6) : name;  // where the name is a number
}

}  // namespace

std::string seconds_label(double seconds) {
  if (seconds < 0) return "an unknown time";
  return seconds < 10 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string rank_name(const RunTrace& trace, int rank) {
  const RankTrace* const file = trace.rank(rank);
  const auto is_made_up = [](const RankTrace& it) { return it.numbered == Numbered::made_up; };
  if (file == nullptr && std::ranges::any_of(trace.ranks, is_made_up)) return "another rank";
  if (file == nullptr || !is_made_up(*file)) return fmt::format("rank {}", rank);
  const std::filesystem::path path(file->file);
  return "the rank of " + plain_text((path.parent_path().filename() / path.filename()).string(), kNameBytes);
}

std::string rank_label(const HangScan& scan, int rank) {
  const RunTrace& trace = scan.trace();
  const std::optional<std::size_t> at = scan.find(rank);
  std::string parts;
  const auto add = [&](std::string part) { parts += (parts.empty() ? "" : ", ") + std::move(part); };
  if (trace.has_mesh && rank >= 0 && rank < trace.mesh.size()) {
    const mesh::Coord coord = trace.mesh.coord(rank);
    add(fmt::format("dp {} pp {} tp {}", coord.dp, coord.pp, coord.tp));
  }
  if (at && !scan.file(*at).host.empty()) add("node " + plain_text(scan.file(*at).host, kNameBytes));
  return rank_name(trace, rank) + in_brackets(parts);
}

std::string few_names(const RunTrace& trace, const std::vector<int>& ranks) {
  constexpr std::size_t kListed = 2;
  std::string text = rank_name(trace, ranks.front());
  if (ranks.size() == kListed) return text + " and " + rank_name(trace, ranks.back());
  if (ranks.size() > kListed)
    text += fmt::format(", {} and {} more", rank_name(trace, ranks[1]), ranks.size() - kListed);
  return text;
}

std::string lost_label(const HangScan& scan, int rank) {
  const RankTrace* const file = scan.trace().rank(rank);
  if (file == nullptr) return rank_label(scan, rank) + " left no trace";
  const std::string label = rank_label(scan, rank);
  if (file->earlier_s > 0)
    return fmt::format("the dump of {} is of {} earlier by its time stamps and was left out", label,
                       format_duration(file->earlier_s));
  if (file->is_empty)
    return fmt::format("the dump of {} has no entries, though others ended operations with it", label);
  if (!file->is_older) return fmt::format("the dump of {} is cut off", label);
  return fmt::format("the dump of {} is older than those of others, which ended operations with it that it lacks",
                     label);
}

std::string left_out_text(const HangScan& scan) {
  std::vector<int> ranks;
  double earlier_s = 0;
  for (const RankTrace& rank : scan.trace().ranks) {
    if (rank.earlier_s <= 0) continue;
    ranks.push_back(rank.rank);
    earlier_s = std::max(earlier_s, rank.earlier_s);
  }
  if (ranks.empty()) return "";
  if (ranks.size() == 1) return "; " + lost_label(scan, ranks.front());
  return fmt::format("; the dumps of {} are of up to {} earlier by their time stamps and were left out",
                     few_names(scan.trace(), ranks), format_duration(earlier_s));
}

std::string op_label(const RunTrace& trace, const StuckOp& op) {
  std::string name = "operation";
  for (const MemberView& member : op.members) {
    if (!member.has_info) continue;
    const EventInfo& info = trace.infos[member.info];
    name = kind_label(trace, info);
    if (trace::is_point_to_point(info.kind)) name = "send/recv";
    if (member.progress == Progress::begun) break;
  }
  if (op.sequence != kNoDetail) name += fmt::format(" {}", op.sequence);
  return fmt::format("{} of group {}", name, group_label(trace, op.group));
}

std::string event_label(const RunTrace& trace, const Event& event) {
  const EventInfo& info = trace.info(event);
  std::string parts;
  const auto add = [&](std::string part) { parts += (parts.empty() ? "" : ", ") + std::move(part); };
  if (trace::is_comm(info.kind) && info.purpose != Purpose::none) add(std::string(trace::to_string(info.purpose)));
  if (info.chunk >= 0) add(fmt::format("chunk {}", info.chunk));
  if (event.microbatch != kNoMicrobatch) add(fmt::format("microbatch {}", event.microbatch));
  if (event.step != kNoStep) add(fmt::format("step {}", event.step));
  std::string label = kind_label(trace, info);
  if (trace::is_comm(info.kind)) {
    if (event.detail != kNoDetail) label += fmt::format(" {}", event.detail);
    if (info.group >= 0) label += " of group " + group_label(trace, info.group);
  }
  return label + in_brackets(parts);
}

std::string doing(const HangScan& scan, std::size_t at) {
  const RankScan& rank = scan.rank(at);
  const std::vector<Event>& events = scan.file(at).events;
  std::string text;
  const auto add = [&](std::string_view how, std::uint32_t event) {
    if (event == kNoEvent) return;
    const double since_s = scan.since_s(at, event);
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", how, event_label(scan.trace(), events[event]));
    if (since_s >= 0 && event != rank.last) text += fmt::format(" for {}", seconds_label(since_s));
  };
  add("finished", rank.last);
  add("in", rank.section);
  add("in", rank.host);
  for (const Seat& seat : rank.seats)
    if (seat.open != kNoEvent && scan.is_ready(at, seat.open)) add("waits in", seat.open);
  if (rank.section == kNoEvent && rank.host == kNoEvent && rank.open.empty() && rank.next_section == kNoEvent)
    text += text.empty() ? "did nothing that is kept" : "; nothing issued since";
  return text;
}

std::string evidence_text(const RunTrace& trace, const StuckOp& op) {
  // Whether the calls match is another question than who is suspected: "undecided" beside a suspect would read as both.
  const std::string_view match = op.match == Match::undecided ? "calls not comparable" : to_string(op.match);
  std::string text = fmt::format("{}: {}, {} of {} ready for {}", op_label(trace, op), match, op.waiting,
                                 op.members.size(), seconds_label(op.since_s));
  if (op.missing.empty()) return text;
  text += ", missing";
  for (std::size_t i = 0; i < std::min<std::size_t>(op.missing.size(), 4); ++i) {
    const auto member = std::ranges::find(op.members, op.missing[i], &MemberView::rank);
    const std::string name = rank_name(trace, op.missing[i]);
    text += fmt::format("{} {} ({})", i > 0 ? "," : "", name.starts_with("rank ") ? name.substr(5) : name,
                        to_string(member->progress));
  }
  return op.missing.size() > 4 ? text + fmt::format(" and {} more", op.missing.size() - 4) : text;
}

void add_details(std::vector<std::string>& evidence, const HangScan& scan, const StuckOp& op) {
  constexpr std::size_t kShown = 3, kStackBytes = 160;
  std::vector<std::pair<std::string, std::vector<int>>> found;  // how ranks stand, and which
  bool has_times = false;
  for (const MemberView& member : op.members) {
    const std::optional<std::size_t> at = scan.find(member.rank);
    if (!at || scan.file(*at).events.empty()) continue;
    const RankTrace& file = scan.file(*at);
    has_times = has_times || (member.since_s >= 0 && file.file_ns > 0 && file.is_flush_time_known);
    const std::uint32_t issued = scan.find_event(*at, op.group, op.sequence);
    const auto event = issued != kNoEvent ? issued : static_cast<std::uint32_t>(file.events.size() - 1);
    const auto stack = std::ranges::lower_bound(file.stacks, std::pair(event, std::uint32_t{0}));
    if (stack == file.stacks.end() || stack->first != event) continue;
    const std::string text = (issued != kNoEvent ? "issued it at " : "issued its last call at ") +
                             plain_text(scan.trace().strings.text(stack->second), kStackBytes);
    auto same = std::ranges::find(found, text, &std::pair<std::string, std::vector<int>>::first);
    if (same == found.end()) same = found.insert(found.end(), {text, {}});
    same->second.push_back(member.rank);
  }
  std::ranges::stable_sort(found, {}, [](const auto& it) { return it.second.size(); });
  for (std::size_t i = 0; i < std::min(found.size(), kShown); ++i)
    evidence.push_back(few_names(scan.trace(), found[i].second) + ": " + found[i].first);
  if (has_times)
    evidence.emplace_back(
        "times run until the time stamps of the files, which a copy changes unless it is made by cp -p");
}

std::string longest_wait(const HangScan& scan) {
  std::string text;
  double nearest = 0.25;
  for (std::size_t at = 0; at < scan.count(); ++at) {
    const RankScan& rank = scan.rank(at);
    std::vector<std::uint32_t> open = rank.open;
    for (const std::uint32_t event : {rank.section, rank.host})
      if (event != kNoEvent) open.push_back(event);
    for (const std::uint32_t event : open) {
      const double since_s = scan.since_s(at, event), patience_s = scan.patience_s(at, event);
      if (since_s <= nearest * patience_s) continue;
      nearest = since_s / patience_s;
      text = fmt::format("; rank {} has been in {} for {}, and beyond {} it is a hang", scan.file(at).rank,
                         event_label(scan.trace(), scan.file(at).events[event]), seconds_label(since_s),
                         seconds_label(patience_s));
    }
  }
  return text;
}

}  // namespace ms::tracepp
