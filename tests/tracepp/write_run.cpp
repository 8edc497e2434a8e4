#include "tracepp/write_run.h"

#include "trace/recorder.h"

namespace ms::tracepp {
namespace {

using trace::Recorder;
using trace::Ticket;

Ticket issue(Recorder& recorder, const RunTrace& run, const Event& event) {
  const EventInfo& info = run.info(event);
  const trace::Scope scope(&recorder, {.purpose = info.purpose,
                                       .chunk = info.chunk,
                                       .microbatch = event.microbatch == kNoMicrobatch ? -1 : event.microbatch});
  if (!trace::is_comm(info.kind)) return recorder.issue(info.kind, run.strings.text(info.name));
  int group = -1;
  if (info.group >= 0) {
    const ProcessGroup& one = run.groups[static_cast<std::size_t>(info.group)];
    group = recorder.group(one.name, info.group, one.ranks);
  }
  return recorder.issue_comm({.kind = info.kind,
                              .group = group,
                              .type = run.strings.text(info.type),
                              .root = info.root,
                              .size_bytes = info.size_bytes,
                              .sequence = event.detail});
}

void write_rank(const RunTrace& run, const RankTrace& rank, const std::string& dir, std::int64_t max_bytes) {
  Recorder recorder(dir,
                    {.rank = rank.rank,
                     .world = run.mesh.size(),
                     .dp = run.mesh.dp,
                     .pp = run.mesh.pp,
                     .tp = run.mesh.tp,
                     .host = rank.host,
                     .run = run.run,
                     .device = "sim",
                     .clock_ns = std::max<std::int64_t>(rank.clock_ns, 1),
                     .realtime_ns = rank.realtime_ns,
                     .microbatches = run.microbatches,
                     .chunks = run.chunks,
                     .flops_per_step = run.flops_per_step,
                     .peak_flops = run.peak_flops},
                    max_bytes, trace::Level::messages);
  // A step ends when the next but one is issued at the latest: its events have all been issued by then.
  const Event* open = nullptr;
  const auto end_step = [&] {
    if (open != nullptr && open->state == State::ended) recorder.end_step(open->step, open->end_ns(), {});
  };
  for (const Event& event : rank.events) {
    if (run.info(event).kind == Kind::step) {
      end_step();
      open = &event;
      recorder.begin_step(event.step, event.begin_ns);
      continue;
    }
    const Ticket ticket = issue(recorder, run, event);
    if (event.state == State::issued) continue;
    recorder.begin(ticket, event.begin_ns);
    if (event.state != State::ended) continue;
    if (trace::is_section(run.info(event).kind) && event.detail != kNoDetail) {
      recorder.end_section(ticket, event.end_ns(), std::int64_t{event.detail} * 1000);
    } else {
      recorder.end(ticket, event.end_ns());
    }
  }
  end_step();
  for (const Probe& probe : rank.probes) {
    recorder.probe({.peer = static_cast<std::uint32_t>(probe.peer),
                    .round = static_cast<std::uint32_t>(probe.round),
                    .asked_ns = probe.asked_ns,
                    .answered_ns = probe.answered_ns,
                    .peer_heard_ns = probe.peer_heard_ns,
                    .peer_replied_ns = probe.peer_replied_ns});
  }
  // The names that the file knows are the same from `running` on.
  const auto ending =
      rank.ending == Ending::unknown
          ? trace::format::Ending::running
          : static_cast<trace::format::Ending>(static_cast<int>(rank.ending) - static_cast<int>(Ending::running));
  recorder.close(ending, rank.ending_text);
}

}  // namespace

void write_run(const RunTrace& run, const std::string& dir, std::int64_t max_bytes) {
  for (const RankTrace& rank : run.ranks) write_rank(run, rank, dir, max_bytes);
}

}  // namespace ms::tracepp
