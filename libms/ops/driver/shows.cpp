// The files, the log and the ports by which a driver shows what it does.
#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "driver/driver.h"
#include "driver/status.h"
#include "net/measure/interface.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

constexpr double kRejectedEvery_s = 3600;
constexpr double kLedger_s = 60;  // between two writes of the ledger, at most

}  // namespace

// A port that is taken is a refusal in the beginning only: a driver that was killed goes on without it.
void Driver::open_metrics_port() {
  if (options_.metrics_port.empty()) return;
  try {
    metrics_port_.emplace(options_.metrics_port, clock_);
  } catch (const Error& error) {
    if (!earlier_) throw;
    log::warn("driver", "{}", error.message());
  }
}

void Driver::comment(const std::string& text) {
  const std::string elastic = elastic_text();  // ms-loan reads it, and asks such a run for nodes
  if (!options_.comment && elastic.empty()) return;
  if (!comment_)
    comment_.emplace(slurm::CommandOptions{.conf = options_.slurm_conf}, static_cast<std::uint32_t>(options_.job));
  comment_->set((elastic.empty() ? "ms-driver: " : elastic) + printable(text, 200));
}

void Driver::tell(const std::string& kind, const std::vector<std::string>& nodes, const std::string& code,
                  const std::string& text) {
  events_.add({.wall_s = clock_.wall_s(),
               .kind = kind,
               .node = slurm::fold_hostlist(nodes),
               .code = code,
               .message = printable(text, 500),
               .job_id = static_cast<std::uint32_t>(options_.job)});
}

void Driver::save() {
  shown_s_ = -1e9;  // what is shown follows at once
  saved_s_ = clock_.now_s();
  DriverState state{.job = job(),
                    .heartbeat = heartbeat_,
                    .addresses = {},
                    .port = hub_.port(),
                    .attempt = ledger_.attempts.empty() ? 0 : entry().number,
                    .nodes = nodes_,
                    .command = command_ ? std::optional(command_->place()) : std::nullopt,
                    .output_offset = output_ ? output_->offset() : 0,
                    .given_back = given_back_};
  for (const net::Interface& interface : net::interfaces()) {
    state.addresses.push_back(interface.address.with_port(hub_.port()).str());
  }
  // A full disk must not end a healthy run: the next change tries again.
  try {
    write_file_atomic(files_.ledger(), to_json(ledger_, clock_.wall_s()));
    write_file_atomic(files_.state(), to_json(state));
  } catch (const Error& error) { log::warn("driver", "{}", error.message()); }
}

// The first at once, more of them once an hour and in the end: a flood must not fill the log.
void Driver::log_rejected(double now_s) {
  std::string example;
  rejected_ += hub_.take_rejected(example);
  if (rejected_ == 0 || (now_s - rejected_s_ < kRejectedEvery_s && !result_)) return;
  log::warn("driver", "{} proved nothing and had to go, for example {}", plural(rejected_, "connection"), example);
  rejected_ = 0;
  rejected_s_ = now_s;
}

void Driver::show(double now_s) {
  if (now_s - saved_s_ >= kLedger_s) save();  // the steps of an attempt under way, for who reads the report meanwhile
  shown_s_ = now_s;
  log_rejected(now_s);
  Status status{.phase = std::string(phase_ == Phase::running    ? "trains"
                                     : phase_ == Phase::waiting  ? "waits"
                                     : phase_ == Phase::checking ? "checks"
                                                                 : "recovers"),
                .job = job(),
                .pool = pool_,
                .ledger = ledger_,
                .watcher = watcher_ ? &*watcher_ : nullptr};
  if (result_) status.phase = "ended";
  try {
    write_file_atomic(files_.status(), status_json(status, clock_.wall_s(), now_s));
    metrics_ = status_metrics(status, clock_.wall_s(), now_s);
    write_file_atomic(files_.metrics(), metrics_);
  } catch (const Error& error) { log::debug("driver", "{}", error.message()); }
}

}  // namespace ms::driver
