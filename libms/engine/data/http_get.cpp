#include "data/http_get.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/handle.h"
#include "base/optional_library.h"
#include "base/text.h"

namespace ms::data {
namespace {

// The functions of libcurl. It is loaded when an object is read: libms.so, which ms-diag loads on every node, does not
// need it and what it needs.
struct Curl {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_version_info) version_info = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
  std::string why = {};  // it cannot be used; empty: it can
};

Curl load_curl() {
  Curl curl;
  OptionalLibrary library({"libcurl.so.4", "libcurl-gnutls.so.4"});
  library.find(curl.global_init, "curl_global_init");
  library.find(curl.version_info, "curl_version_info");
  library.find(curl.easy_init, "curl_easy_init");
  library.find(curl.easy_reset, "curl_easy_reset");
  library.find(curl.easy_cleanup, "curl_easy_cleanup");
  library.find(curl.easy_setopt, "curl_easy_setopt");
  library.find(curl.easy_perform, "curl_easy_perform");
  library.find(curl.easy_getinfo, "curl_easy_getinfo");
  library.find(curl.easy_strerror, "curl_easy_strerror");
  library.find(curl.slist_append, "curl_slist_append");
  library.find(curl.slist_free_all, "curl_slist_free_all");
  curl.why = library.why();
  if (curl.why.empty() && curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) curl.why = "libcurl could not start";
  return curl;
}

const Curl& curl() {
  static const Curl loaded = load_curl();  // for the life of the process
  return loaded;
}

struct HeaderListTraits {
  using Type = curl_slist*;
  static constexpr curl_slist* null() { return nullptr; }
  static void destroy(curl_slist* list) noexcept { curl().slist_free_all(list); }
};

template <class Value>
void set_option(CURL* easy, CURLoption option, Value value) {
  const CURLcode code = curl().easy_setopt(easy, option, value);
  MS_ASSERT(code == CURLE_OK, "curl option {}: {}", static_cast<int>(option), curl().easy_strerror(code));
}

struct Receiver {
  HttpGot got;
  std::size_t most_bytes;
  bool is_too_long = false;
};

std::size_t receive_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& receiver = *static_cast<Receiver*>(user);
  receiver.is_too_long = size * count > receiver.most_bytes - receiver.got.body.size();
  if (receiver.is_too_long) return 0;  // ends the transfer
  receiver.got.body.append(data, size * count);
  return size * count;
}

std::size_t receive_header(char* data, std::size_t size, std::size_t count, void* user) {
  HttpGot& got = static_cast<Receiver*>(user)->got;
  const std::string_view line(data, size * count);
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return line.size();
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name == "etag") got.etag = trim(line.substr(colon + 1));
  if (name == "content-range") got.content_range = trim(line.substr(colon + 1));
  return line.size();
}

int is_stopped(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::stop_token*>(user)->stop_requested() ? 1 : 0;
}

// The first release that signs all headers that it is given, x-amz-security-token among them.
constexpr unsigned kSigns = 0x075600;

}  // namespace

struct HttpConnection::Easy {
  explicit Easy(CURL* made) : handle(made) {}
  Easy(const Easy&) = delete;
  Easy& operator=(const Easy&) = delete;
  ~Easy() { curl().easy_cleanup(handle); }
  CURL* const handle;
};

HttpConnection::HttpConnection() {
  if (!curl().why.empty())
    throw user_error("data.object", "object stores are read by libcurl: " + curl().why,
                     "install libcurl4 (Debian), or copy the token files to a file system");
  easy_ = std::make_unique<Easy>(curl().easy_init());
  MS_ASSERT(easy_->handle != nullptr, "no memory for a connection");
}
HttpConnection::~HttpConnection() = default;
HttpConnection::HttpConnection(HttpConnection&&) noexcept = default;
HttpConnection& HttpConnection::operator=(HttpConnection&&) noexcept = default;

HttpGot HttpConnection::get(const HttpGet& request, const std::stop_token& stop) {
  CURL* const easy = easy_->handle;
  curl().easy_reset(easy);  // the connection stays
  const curl_version_info_data& version = *curl().version_info(CURLVERSION_NOW);
  if (!request.sigv4.empty() && version.version_num < kSigns) {
    throw user_error("data.object", fmt::format("libcurl {} cannot sign requests for S3", version.version),
                     "install libcurl 7.86 or later, or copy the token files to a file system");
  }
  Handle<HeaderListTraits> headers;
  for (const std::string& header : request.headers) {
    headers = Handle<HeaderListTraits>(curl().slist_append(headers.release(), header.c_str()));
    MS_ASSERT(headers, "no memory for a header");
  }
  std::array<char, CURL_ERROR_SIZE> words{};
  Receiver receiver{.got = {}, .most_bytes = request.most_bytes};
  set_option(easy, CURLOPT_ERRORBUFFER, words.data());
  set_option(easy, CURLOPT_NOSIGNAL, 1L);
  set_option(easy, CURLOPT_FOLLOWLOCATION, 0L);
  set_option(easy, CURLOPT_PATH_AS_IS, 1L);  // keys may have ".." in them
  set_option(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  set_option(easy, CURLOPT_USERAGENT, "ms-data");
  set_option(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout_s * 1000));
  set_option(easy, CURLOPT_URL, request.url.c_str());
  set_option(easy, CURLOPT_HTTPHEADER, headers.get());
  if (!request.range.empty()) set_option(easy, CURLOPT_RANGE, request.range.c_str());
  if (!request.ca_bundle.empty()) set_option(easy, CURLOPT_CAINFO, request.ca_bundle.c_str());
  if (!request.sigv4.empty()) {
    set_option(easy, CURLOPT_AWS_SIGV4, request.sigv4.c_str());
    set_option(easy, CURLOPT_USERPWD, request.credentials.c_str());
  }
  set_option(easy, CURLOPT_WRITEFUNCTION, receive_body);
  set_option(easy, CURLOPT_WRITEDATA, &receiver);
  set_option(easy, CURLOPT_HEADERFUNCTION, receive_header);
  set_option(easy, CURLOPT_HEADERDATA, &receiver);
  set_option(easy, CURLOPT_NOPROGRESS, 0L);
  set_option(easy, CURLOPT_XFERINFOFUNCTION, is_stopped);
  set_option(easy, CURLOPT_XFERINFODATA, &stop);

  const CURLcode code = curl().easy_perform(easy);
  if (code != CURLE_OK) {
    if (receiver.is_too_long) return {.problem = fmt::format("its reply has over {} bytes", request.most_bytes)};
    return {.problem = words[0] != '\0' ? words.data() : curl().easy_strerror(code)};
  }
  long status = 0;
  curl().easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  receiver.got.status = static_cast<int>(status);
  return std::move(receiver.got);
}

}  // namespace ms::data
