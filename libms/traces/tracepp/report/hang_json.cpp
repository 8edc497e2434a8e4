// Implements hang_json of hang.h. Keys are stable; new ones may come.
#include <algorithm>

#include "base/json.h"
#include "tracepp/hang/hang.h"

namespace ms::tracepp {
namespace {

constexpr int kHangSchema = 1;
// Limits: in a large run thousands of operations are stalled behind the one that matters.
constexpr std::size_t kOps = 256, kMembersInAll = 32768;

Json known_seconds(double value) { return value < 0 ? Json(nullptr) : Json(value); }

Json view_json(const MemberView& member, const RunTrace& trace) {
  Json json{{"rank", member.rank}, {"progress", to_string(member.progress)}};
  if (member.has_info) {
    const EventInfo& info = trace.infos[member.info];
    json["kind"] = trace::to_string(info.kind);
    json["size_bytes"] = info.size_bytes < 0 ? Json(nullptr) : Json(info.size_bytes);
    json["type"] = trace.strings.text(info.type);
  }
  json["since_s"] = known_seconds(member.since_s);
  return json;
}

Json op_json(const StuckOp& op, const RunTrace& trace, std::size_t& members_left) {
  const ProcessGroup& group = trace.groups[static_cast<std::size_t>(op.group)];
  Json members = Json::array();
  for (const MemberView& member : op.members) {
    if (members_left == 0) break;
    --members_left;
    members.push_back(view_json(member, trace));
  }
  return {{"group", group.name},
          {"axis", trace::to_string(group.axis)},
          {"is_guessed", group.is_guessed},
          {"sequence", op.sequence},
          {"match", to_string(op.match)},
          {"since_s", known_seconds(op.since_s)},
          {"num_members", op.members.size()},
          {"num_waiting", op.waiting},
          {"missing", op.missing},
          {"members", std::move(members)}};
}

Json suspect_json(const HangSuspect& it, const RunTrace& trace) {
  const RankTrace* const file = trace.rank(it.rank);
  const bool is_made_up = file != nullptr && file->numbered == Numbered::made_up;
  return {{"rank", is_made_up || it.rank < 0 ? Json(nullptr) : Json(it.rank)},
          {"file", file == nullptr ? Json(nullptr) : Json(file->file)},
          {"dp", it.at.dp},
          {"pp", it.at.pp},
          {"tp", it.at.tp},
          {"host", it.host},
          {"pid", it.pid},
          {"reason", to_string(it.reason)},
          {"fault", to_string(fault_domain(it))},
          {"confidence", it.confidence},
          {"group", it.op < 0 ? Json(nullptr) : Json(it.op)},
          {"doing", it.doing}};
}

}  // namespace

std::string hang_json(const Hang& hang, const RunTrace& trace) {
  Json json{{"schema", kHangSchema},
            {"state", to_string(hang.state)},
            {"sentence", hang.sentence},
            {"since_s", known_seconds(hang.since_s)},
            {"is_alive", hang.is_alive},
            {"evidence", hang.evidence},
            {"suspects", Json::array()},
            {"sources", Json::array()},
            {"collect", hang.collect},
            {"groups", Json::array()},
            {"groups_left_out", hang.ops.size() - std::min(hang.ops.size(), kOps)},
            {"missing_ranks", hang.missing_ranks},
            {"waits", Json::array()},
            {"problems", trace.problems}};
  for (const HangSuspect& suspect : hang.suspects) json["suspects"].push_back(suspect_json(suspect, trace));
  for (const HangSource& source : hang.sources)
    json["sources"].push_back({{"name", source.name},
                               {"state", to_string(source.state)},
                               {"stance", to_string(source.stance)},
                               {"sentence", source.sentence}});
  std::size_t members_left = kMembersInAll;
  for (std::size_t i = 0; i < std::min(hang.ops.size(), kOps); ++i)
    json["groups"].push_back(op_json(hang.ops[i], trace, members_left));
  // The operation that each rank waits in, as an index of "groups", which may be beyond its end because "groups" is
  // cut.
  for (const Wait& wait : hang.waits) {
    const StuckOp& op = hang.ops[static_cast<std::size_t>(wait.op)];
    json["waits"].push_back({{"rank", wait.rank},
                             {"group", trace.groups[static_cast<std::size_t>(op.group)].name},
                             {"sequence", op.sequence},
                             {"index", wait.op}});
  }
  return json.dump(2) + "\n";
}

}  // namespace ms::tracepp
