#include "notify/notify_config.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/man.h"
#include "notify/notify.h"

namespace ms::notify {
namespace {

constexpr double kDay_s = 86'400;

constexpr Field<NotifyConfig> kFields[] = {
    {.key = "spool",
     .member = &NotifyConfig::spool,
     .doc = "The directory into which ms-diag, as root, writes events: paths.spool of ms-diag.toml."},
    {.key = "state",
     .member = &NotifyConfig::state,
     .doc = "A directory of the notifier's own, which its user may write: it remembers there what was sent."},
    {.key = "alertmanager",
     .member = &NotifyConfig::alertmanager,
     .doc = "The URL of Prometheus' Alertmanager, as in http://alerts:9093; empty for none."},
    {.key = "slack",
     .member = &NotifyConfig::slack,
     .doc =
         "The URL of an incoming webhook of Slack; empty for none. It is a secret: let only the notifier's user read "
         "the file."},
    {.key = "relay_to",
     .member = &NotifyConfig::relay_to,
     .doc =
         "A directory that all nodes share, for nodes from which no alert gets out: events are left in a folder there, "
         "named after the node, and the notifier whose relay_from is this directory sends them. It belongs to the "
         "notifier's user, who has the same number on all nodes; empty for none."},
    {.key = "relay_from",
     .member = &NotifyConfig::relay_from,
     .doc = "On one login node: the directory that the nodes have as relay_to. What they left there is sent to "
            "alertmanager and slack, and removed once both know it; empty for none."},
    {.key = "proxy",
     .member = &NotifyConfig::proxy,
     .doc = "The proxy to reach them through, as in http://proxy:3128; empty for none. The environment's is ignored."},
    {.key = "timeout",
     .member = &NotifyConfig::timeout_s,
     .doc = "How long one request may take.",
     .unit = Unit::seconds,
     .min = 0.1,
     .max = 60},
    {.key = "retries",
     .member = &NotifyConfig::retries,
     .doc = "How often a request is repeated at once when it fails; afterwards its events wait for the next look.",
     .min = 0,
     .max = 10},
    {.key = "backoff",
     .member = &NotifyConfig::backoff_s,
     .doc = "The pause before the first repetition; it doubles with each, up to half a minute.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 30},
    {.key = "poll",
     .member = &NotifyConfig::poll_s,
     .doc = "How often it looks into the spool, unless it is run with --once.",
     .unit = Unit::seconds,
     .min = 1,
     .max = kDay_s},
    {.key = "resend",
     .member = &NotifyConfig::resend_s,
     .doc =
         "Alerts of drained nodes are sent to Alertmanager again this often, so that it knows them after a restart; 0 "
         "for never.",
     .unit = Unit::seconds,
     .min = 0,
     .max = kDay_s},
    {.key = "max_age",
     .member = &NotifyConfig::max_age_s,
     .doc = "Events that are older than this when they are first seen are news no more and are not sent.",
     .unit = Unit::seconds,
     .min = 60,
     .max = 365 * kDay_s},
    {.key = "drain_stays",
     .member = &NotifyConfig::drain_stays_s,
     .doc = "How long the alert of a drain stays where no undrain ends it, because somebody resumed the node by hand.",
     .unit = Unit::seconds,
     .min = 60,
     .max = 365 * kDay_s},
    {.key = "event_stays",
     .member = &NotifyConfig::event_stays_s,
     .doc =
         "How long the alert of an event without an end stays: what would have been drained, was withdrawn, a strike.",
     .unit = Unit::seconds,
     .min = 60,
     .max = 365 * kDay_s},
};

bool is_http_url(const std::string& url) {
  const std::size_t host = url.starts_with("http://") ? 7 : url.starts_with("https://") ? 8 : 0;
  return host > 0 && url.size() > host && url.size() <= 2048 && url[host] != '/' &&
         std::all_of(url.begin(), url.end(), [](char c) { return c > ' ' && c <= '~'; });
}

void validate(const NotifyConfig& config, ConfigSchema& schema) {
  const auto url = [&](std::string_view key, const std::string& value) {
    if (!value.empty() && !is_http_url(value)) {
      schema.add_problem(key, fmt::format("{}: must be a URL that begins with http:// or https://", key));
    }
  };
  url("notify.alertmanager", config.alertmanager);
  url("notify.slack", config.slack);
  url("notify.proxy", config.proxy);
  if (config.alertmanager.empty() && config.slack.empty() && config.relay_to.empty()) {
    schema.add_problem(
        "notify.alertmanager",
        "there is nobody to tell: neither notify.alertmanager nor notify.slack nor notify.relay_to is set");
  }
  if (!config.relay_from.empty() && !config.relay_to.empty()) {
    schema.add_problem("notify.relay_from",
                       "notify.relay_to is for nodes without a way out, notify.relay_from for the one that sends what "
                       "they leave: set one of them");
  }
  for (const auto& [key, path] : {std::pair<const char*, const std::string&>{"notify.spool", config.spool},
                                  std::pair<const char*, const std::string&>{"notify.state", config.state},
                                  std::pair<const char*, const std::string&>{"notify.relay_to", config.relay_to},
                                  std::pair<const char*, const std::string&>{"notify.relay_from", config.relay_from}}) {
    if (!path.starts_with('/') && !(path.empty() && std::string_view(key).starts_with("notify.relay"))) {
      schema.add_problem(key, fmt::format("{}: must be an absolute path, got '{}'", key, path));
    }
  }
}

}  // namespace

void bind(ConfigSchema& schema, NotifyConfig& config) {
  schema.section("notify", "Where events come from and where they go.", config, kFields);
}

NotifyConfig load_notify_config(const std::string& path, const std::string& run) {
  NotifyConfig config;
  ConfigSchema schema;
  bind(schema, config);
  schema.load_file(path);
  if (!run.empty()) {
    const std::string driver = std::filesystem::absolute(run).string() + "/driver";
    if (::access(driver.c_str(), F_OK) != 0) {
      throw user_error("notify.run", fmt::format("no driver has been in {}", run),
                       "name the directory that ms-driver run was given as --run-dir");
    }
    config.spool = driver + "/events";
    config.state = driver + "/notified";
    config.relay_from.clear();  // the nodes' events are for the service
  }
  validate(config, schema);
  schema.throw_if_problems();
  return config;
}

namespace {

std::string notify_text(std::string (*form)(const man::ConfigPage&, std::span<const ConfigRow>)) {
  NotifyConfig config;
  ConfigSchema schema;
  bind(schema, config);
  return form(
      {.name = "ms-notify.toml",
       .summary = "whom ms-diag notify tells what happened on a node",
       .description =
           "What ms-diag decides about a node as root is left as events in a spool. ms-diag notify runs on the same "
           "node "
           "as an unprivileged user and sends them to Prometheus' Alertmanager, to Slack, or to both. What cannot be "
           "sent waits in the spool, which keeps the newest 1000 events, and is tried again at the next look; whom it "
           "was sent to already is not told twice.\n\n"
           "Alerts have the labels alertname, code, node, severity and, where there was one, job. The alert of a drain "
           "is resolved when ms-diag undrains the node.\n\n"
           "Where compute nodes have no way out, relay_to has their notifiers leave events in a directory that all "
           "nodes share, and the notifier of a login node, with relay_from, sends them: the same service with another "
           "file. A directory below /home is hidden from the service. Installing the package gives its user, "
           "ms-notify, any free number: where the numbers differ, create the user with the same one on all nodes "
           "before.\n\n"
           "With --run the events are those of a run of ms-driver: MsRunInterrupted, MsRunFailed and MsRunEnded. spool "
           "and state are then in the run's directory.\n\n"
           "ms-diag --sample-notify prints such a file with every key commented out.",
       .see_also = {"ms-diag(1)", "ms-diag.toml(5)"}},
      schema.reference());
}

}  // namespace

std::string notify_page() { return notify_text(man::config_page); }
std::string sample_notify() { return notify_text(man::sample_config); }

}  // namespace ms::notify
