#include "driver/publisher.h"

#include <cstdio>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

constexpr double kRejectedEvery_s = 3600;

}  // namespace

Publisher::Publisher(const DriverOptions& options, Clock& clock)
    : options_(options),
      clock_(clock),
      files_(options.run_dir),
      events_(options.run_dir, options.diag, options.notify) {}

void Publisher::comment(const std::string& text, const std::string& elastic, bool is_lost) {
  const bool is_wanted = options_.comment || !elastic.empty();
  if (!is_wanted && !is_lost) return;
  if (!comment_)
    comment_.emplace(slurm::CommandOptions{.conf = options_.slurm_conf}, static_cast<std::uint32_t>(options_.job));
  comment_->set((elastic.empty() ? std::string(JobComment::kOurs) : elastic) + printable(text, 200), is_wanted);
}

void Publisher::tell(const std::string& kind, const std::vector<std::string>& nodes, const std::string& code,
                     const std::string& text) {
  events_.add({.wall_s = clock_.wall_s(),
               .kind = kind,
               .node = slurm::fold_hostlist(nodes),
               .code = code,
               .message = printable(text, 500),
               .job_id = static_cast<std::uint32_t>(options_.job)});
}

void Publisher::log_rejected(Hub& hub, double now_s, bool ends) {
  std::string example;
  rejected_ += hub.take_rejected(example);
  if (rejected_ == 0 || (now_s - rejected_s_ < kRejectedEvery_s && !ends)) return;
  log::warn("driver", "{} proved nothing and had to go, for example {}", plural(rejected_, "connection"), example);
  rejected_ = 0;
  rejected_s_ = now_s;
}

void Publisher::flush_log(const std::string& output) {
  const bool full = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  std::clearerr(stdout);
  if (log_was_full_ && !full) log::warn("driver", "lines are missing above, the disk was full: see {}", output);
  log_was_full_ = full;
}

void Publisher::send(double now_s) { events_.send(now_s); }

void Publisher::keep(const std::string& path, const std::string& text) {
  try {
    write_file_atomic(path, text);
  } catch (const Error& error) { log::debug("driver", "{}", error.message()); }
}

void Publisher::show(const Status& status, double now_s) {
  keep(files_.status(), status_json(status, clock_.wall_s(), now_s));
  keep(files_.metrics(), status_metrics(status, clock_.wall_s(), now_s));
}

}  // namespace ms::driver
