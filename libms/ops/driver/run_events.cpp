#include "driver/run_events.h"

#include <signal.h>

#include "base/error.h"
#include "base/log.h"

namespace ms::driver {
namespace {

constexpr double kSendAgain_s = 60, kSendMost_s = 120, kLastEvents_s = 15;

}  // namespace

void RunEvents::add(const health::Event& event) {
  try {
    health::spool_event(files_.events(), event);
    waiting_ = true;
    next_s_ = 0;
  } catch (const Error& error) { log::warn("driver", "an event is lost: {}", error.message()); }
}

void RunEvents::send(double now_s) {
  if (config_.empty()) return;
  if (sender_ && !sender_->ended()) {
    if (now_s - began_s_ < kSendMost_s) return;
    sender_->signal(SIGKILL);
  }
  if (sender_ && sender_->status() != 0) {
    log::warn("driver", "not everybody could be told what happened: see {}/notify.log", files_.dir);
    waiting_ = true;
    next_s_ = now_s + kSendAgain_s;
  }
  sender_.reset();
  if (!waiting_ || now_s < next_s_) return;
  try {
    sender_ = LongCommand::start({diag_, "notify", "--once", "--run", run_dir_, "--config", config_},
                                 environment_with({}), files_.dir + "/notify.log", files_.dir + "/notify.status");
    began_s_ = now_s;
    waiting_ = false;
  } catch (const Error& error) {
    log::warn("driver", "no notification was sent: {}", error.message());
    next_s_ = now_s + kSendAgain_s;
  }
}

void RunEvents::finish(Clock& clock) {
  const double end_s = clock.now_s() + kLastEvents_s;
  // The sender at work may not have seen the last event; one that failed has had its chance.
  for (send(clock.now_s()); sender_ && clock.now_s() < end_s; send(clock.now_s())) clock.sleep_s(0.05);
}

}  // namespace ms::driver
