#include "tracepp/hang/graph.h"

namespace ms::tracepp {

bool is_mismatch(Match match) {
  return match == Match::type_mismatch || match == Match::size_mismatch || match == Match::dtype_mismatch;
}

Match match_of(const StuckOp& op, const RunTrace& trace) {
  const MemberView* first = nullptr;
  bool types = false, sizes = false, dtypes = false, states = false, undecided = false;
  int views = 0;
  for (const MemberView& member : op.members) {
    if (!member.has_info) continue;
    ++views;
    if (first == nullptr) {
      first = &member;
      continue;
    }
    const EventInfo &a = trace.infos[first->info], &b = trace.infos[member.info];
    const bool pair = trace::is_point_to_point(a.kind) && trace::is_point_to_point(b.kind);
    types |= !pair && a.kind != b.kind;
    const bool size_differs = a.size_bytes >= 0 && b.size_bytes >= 0 && a.size_bytes != b.size_bytes;
    if (a.kind == Kind::all_to_all) {
      undecided |= size_differs;  // members may well send different sizes
    } else {
      sizes |= size_differs || (pair && a.kind == b.kind);
    }
    dtypes |= a.type != b.type && a.type != 0 && b.type != 0;
    states |= first->progress != member.progress;
  }
  if (types) return Match::type_mismatch;
  if (sizes) return Match::size_mismatch;
  if (dtypes) return Match::dtype_mismatch;
  if (undecided || views < 2) return Match::undecided;
  return states ? Match::state_mismatch : Match::fully_matched;
}

}  // namespace ms::tracepp
