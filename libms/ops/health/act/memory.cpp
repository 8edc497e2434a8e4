#include "health/act/memory.h"

#include <cmath>

#include "base/text.h"
#include "health/act/site.h"
#include "health/act/spool.h"

namespace ms::health {
namespace {

constexpr double kHour_s = 3600;
constexpr std::size_t kMaxMessage = 1000;

}  // namespace

Memory::Memory(const Policy& policy, const World& world, std::string node)
    : policy_(policy), world_(world), node_(std::move(node)) {
  world_.attempt("the state directory is not used", [&] { directory_.emplace(policy.paths.state); });
}

State Memory::state() const {
  State state;
  if (directory_) world_.attempt("the state counts as empty", [&] { state = directory_->load(); });
  return state;
}

bool Memory::change(const std::function<void(State&)>& change) const {
  return directory_ && world_.attempt("the state is not kept", [&] { directory_->update(change); });
}

std::optional<double> Memory::last_wall_s(std::string_view event, std::string_view code, std::string_view about) const {
  std::vector<HistoryEntry> entries;
  if (directory_) world_.attempt("the history counts as empty", [&] { entries = directory_->history(); });
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->event == event && (code.empty() || entry->code == code) && entry->message.starts_with(about))
      return entry->wall_s;
  }
  return std::nullopt;
}

bool Memory::to_be_told(const Happening& happening, Tell tell) const {
  if (tell == Tell::always) return true;
  const std::optional<double> last =
      last_wall_s(happening.event, happening.code, plain_text(happening.about, kMaxMessage));
  return !last || std::abs(world_.clock.wall_s() - *last) > kHour_s;  // a clock that went back tells too
}

void Memory::remember(const Happening& happening, Tell tell) const {
  if (!directory_ || !to_be_told(happening, tell)) return;
  world_.attempt("the history is not kept", [&] {
    directory_->append_history({.wall_s = world_.clock.wall_s(),
                                .event = happening.event,
                                .code = happening.code,
                                .message = plain_text(happening.message, kMaxMessage),
                                .job_id = happening.job_id,
                                .strikes = happening.strikes});
  });
}

void Memory::remember_and_spool(const Happening& happening, Tell tell) const {
  if (!to_be_told(happening, tell)) return;
  remember(happening, Tell::always);
  world_.attempt("the event is not spooled", [&] {
    spool_event(policy_.paths.spool, {.wall_s = world_.clock.wall_s(),
                                      .kind = happening.event,
                                      .node = node_,
                                      .code = happening.code,
                                      .message = plain_text(happening.message, kMaxMessage),
                                      .job_id = happening.job_id,
                                      .strikes = happening.strikes});
  });
  if (is_shared_event(happening.event)) share();
}

void Memory::share() const {
  if (policy_.paths.site.empty() || !directory_ || !world_.afterwards) return;
  world_.attempt("the site is not told", [&] {
    world_.afterwards([site = policy_.paths.site, node = node_, own = directory_->history()](const World&) {
      share_history(site, node, own);
    });
  });
}

}  // namespace ms::health
