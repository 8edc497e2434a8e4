#include "data/object_store.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace ms::data {
namespace {

constexpr std::string_view kScheme = "s3://";
constexpr std::size_t kMostErrorBytes = 1 << 16;
// SHA-256 of an empty body.
constexpr std::string_view kHashOfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

// The key with what is not a letter, digit, "-", ".", "_", "~" or "/" as %XX: so it is signed.
std::string url_encoded(std::string_view key) {
  std::string text;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || std::string_view("-._~/").find(c) != std::string_view::npos)
      text += c;
    else
      text += fmt::format("%{:02X}", byte);
  }
  return text;
}

// The text of an element of the XML in which S3 says what is wrong; empty if it has none.
std::string element(std::string_view xml, std::string_view name) {
  const std::string open = fmt::format("<{}>", name);
  const std::size_t begin = xml.find(open);
  if (begin == std::string_view::npos) return {};
  const std::size_t end = xml.find('<', begin + open.size());
  return std::string(xml.substr(begin + open.size(), end - begin - open.size()));
}

// Returns what a reply says of itself: "403 AccessDenied: Access Denied".
std::string problem_of(const HttpGot& got) {
  if (got.status == 0) return got.problem;
  const std::string code = element(got.body, "Code"), message = element(got.body, "Message");
  return fmt::format("{}{}{}{}{}", got.status, code.empty() ? "" : " ", code, message.empty() ? "" : ": ", message);
}

// The bytes that a reply has, both ends included, and how many the object has.
struct ContentRange {
  std::int64_t begin = 0, end = 0, total = 0;
};

// Parses "bytes 0-99/1234"; nullopt: this is not such a text.
std::optional<ContentRange> parse_range(std::string_view text) {
  ContentRange range;
  for (const auto& [before, number] :
       {std::pair{"bytes ", &range.begin}, std::pair{"-", &range.end}, std::pair{"/", &range.total}}) {
    if (!text.starts_with(before)) return std::nullopt;
    text.remove_prefix(std::string_view(before).size());
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), *number);
    if (problem != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  return text.empty() ? std::optional(range) : std::nullopt;
}

// Returns how many bytes the object has, according to a reply with the part that was requested. Throws if it is
// another.
std::int64_t object_bytes_of(const HttpGot& got, const ObjectRequest& request) {
  const std::optional<ContentRange> range = parse_range(got.content_range);
  if (range && range->begin == request.begin && range->end + 1 == request.begin + std::ssize(got.body) &&
      std::ssize(got.body) == std::min(request.count, range->total - request.begin))
    return range->total;
  throw Error("data.object", Blame::storage,
              fmt::format("{}: the reply has {} bytes as '{}' where bytes {} to {} were requested", request.path,
                          got.body.size(), got.content_range, request.begin, request.begin + request.count - 1));
}

// Fills id, secret and token from a profile of a credentials file, as AWS's tools write it. Whether it is there.
bool read_profile(const std::string& path, std::string_view profile, ObjectStore& store) {
  if (::access(path.c_str(), R_OK) != 0) return false;
  bool is_found = false, is_inside = false;
  for (const std::string& line : split(read_file(path, Blame::user), '\n')) {
    const std::string_view text = trim(line);
    if (text.starts_with('[')) {
      is_inside = text == fmt::format("[{}]", profile);
      is_found = is_found || is_inside;
      continue;
    }
    const std::size_t equals = text.find('=');
    if (!is_inside || equals == std::string_view::npos || text.starts_with('#')) continue;
    const std::string_view key = trim(text.substr(0, equals)), value = trim(text.substr(equals + 1));
    if (key == "aws_access_key_id") store.id = value;
    if (key == "aws_secret_access_key") store.secret = value;
    if (key == "aws_session_token") store.session_token = value;
  }
  return is_found;
}

// Waits; a request to stop ends it.
void pause(double seconds, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
}

HttpGet http_of(const ObjectStore& store, const ObjectRequest& request) {
  const std::string_view name = std::string_view(request.path).substr(kScheme.size());
  if (const std::size_t slash = name.find('/'); slash == 0 || slash >= name.size() - 1)
    throw user_error("data.object", fmt::format("'{}' is not an object: expected s3://BUCKET/KEY", request.path));
  HttpGet get{.url = store.endpoint + "/" + url_encoded(name),
              .range = fmt::format("{}-{}", request.begin, request.begin + request.count - 1),
              .ca_bundle = store.ca_bundle,
              .most_bytes = std::max(static_cast<std::size_t>(request.count), kMostErrorBytes)};
  // A weak ETag never matches; that of the reply is compared in any case.
  if (!request.etag.empty() && !request.etag.starts_with("W/")) get.headers.push_back("If-Match: " + request.etag);
  if (store.id.empty()) return get;
  get.sigv4 = fmt::format("aws:amz:{}:s3", store.region);
  get.credentials = fmt::format("{}:{}", store.id, store.secret);
  // S3 wants the hash of the body among the headers that are signed; not every release of libcurl adds it.
  get.headers.push_back(fmt::format("x-amz-content-sha256: {}", kHashOfNothing));
  if (!store.session_token.empty()) get.headers.push_back("x-amz-security-token: " + store.session_token);
  return get;
}

[[noreturn]] void refuse_replaced(const std::string& path) {
  throw Error("data.object", Blame::storage, fmt::format("{} was replaced while it was read", path),
              "restart the run to read the new object");
}

[[noreturn]] void refuse_reply(const ObjectStore& store, const std::string& path, const HttpGot& got) {
  std::string hint;
  if (got.status == 403 || got.status == 401) {
    hint = store.id.empty()
               ? "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE: the request was not signed"
               : fmt::format(
                     "the key {} may not read it, or its secret is wrong; without s3:ListBucket, S3 answers so "
                     "for an object that does not exist, too",
                     store.id);
  } else if (got.status == 301 || got.status == 307 || got.status == 400) {
    hint = fmt::format("the bucket may be in another region than {}: set AWS_REGION", store.region);
  } else if (got.status == 200) {
    hint = "the store does not support ranges of bytes";
  }
  throw user_error("data.object", fmt::format("{}: {} answers {}", path, store.endpoint, problem_of(got)), hint);
}

// Whether to ask again.
bool is_for_now(int status) { return status == 0 || status == 408 || status == 429 || status >= 500; }

}  // namespace

bool is_object(std::string_view path) { return path.starts_with(kScheme); }

ObjectStore object_store_of(const std::function<const char*(const char*)>& environment) {
  const auto first_of = [&](std::initializer_list<const char*> names) -> std::string {
    for (const char* name : names) {
      const char* value = environment(name);
      if (value != nullptr && *value != '\0') return value;
    }
    return {};
  };
  ObjectStore store{.endpoint = first_of({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}),
                    .region = first_of({"AWS_REGION", "AWS_DEFAULT_REGION"}),
                    .id = first_of({"AWS_ACCESS_KEY_ID"}),
                    .secret = first_of({"AWS_SECRET_ACCESS_KEY"}),
                    .session_token = first_of({"AWS_SESSION_TOKEN"}),
                    .ca_bundle = first_of({"AWS_CA_BUNDLE"})};
  if (store.region.empty()) store.region = "us-east-1";
  if (store.endpoint.empty()) store.endpoint = fmt::format("https://s3.{}.amazonaws.com", store.region);
  while (store.endpoint.ends_with('/')) store.endpoint.pop_back();
  if (!(store.endpoint.starts_with("http://") || store.endpoint.starts_with("https://")) ||
      store.endpoint.find('@') != std::string::npos)
    throw user_error("data.object", "AWS_ENDPOINT_URL is not an http:// or https:// URL without a user and password");
  const std::string profile = first_of({"AWS_PROFILE"});
  if (store.id.empty()) {
    std::string path = first_of({"AWS_SHARED_CREDENTIALS_FILE"});
    if (path.empty()) path = first_of({"HOME"}) + "/.aws/credentials";
    const bool is_found = read_profile(path, profile.empty() ? "default" : profile, store);
    if (!is_found && !profile.empty())
      throw user_error("data.object", fmt::format("AWS_PROFILE is '{}', which {} does not have", profile, path));
  }
  if (store.id.empty() != store.secret.empty())
    throw user_error("data.object", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong together, and one is missing");
  return store;
}

std::optional<ObjectPart> read_object(HttpConnection& connection, const ObjectStore& store,
                                      const ObjectRequest& request, const std::stop_token& stop) {
  const HttpGet get = http_of(store, request);
  const double end_s = monotonic_s() + request.patience_s;
  constexpr double kFirstPause_s = 0.1, kLongestPause_s = 5;
  for (double pause_s = kFirstPause_s;; pause_s = std::min(2 * pause_s, kLongestPause_s)) {
    HttpGot got = connection.get(get, stop);
    if (got.status == 206) {
      const std::int64_t total = object_bytes_of(got, request);
      if (got.etag.empty())
        throw user_error("data.object", fmt::format("{}: {} gives it no ETag", request.path, store.endpoint),
                         "without one a changed object would not be noticed: copy the files to a file system");
      if (!request.etag.empty() && got.etag != request.etag) refuse_replaced(request.path);
      return ObjectPart{std::move(got.body), total, std::move(got.etag)};
    }
    const bool is_absent = got.status == 404 && element(got.body, "Code") != "NoSuchBucket";
    if (is_absent || (request.is_optional && got.status == 403)) return std::nullopt;
    if (got.status == 412 || (got.status == 416 && request.begin > 0)) refuse_replaced(request.path);
    if (got.status == 416) throw user_error("data.object", fmt::format("{} is empty", request.path));
    if (!is_for_now(got.status)) refuse_reply(store, request.path, got);
    if (stop.stop_requested() || monotonic_s() > end_s) {
      throw Error("data.object", Blame::storage,
                  fmt::format("{} cannot be read from {}: {}", request.path, store.endpoint, problem_of(got)));
    }
    pause(pause_s, stop);
  }
}

}  // namespace ms::data
