#include "notify/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/handle.h"

namespace ms::notify {
namespace {

constexpr std::size_t kKeptBytes = 4096;          // of a reply; for messages
constexpr std::size_t kMostReplyBytes = 1 << 20;  // of a reply; more is not listened to

struct EasyTraits {
  using Type = CURL*;
  static constexpr CURL* null() { return nullptr; }
  static void destroy(CURL* easy) noexcept { curl_easy_cleanup(easy); }
};
struct ListTraits {
  using Type = curl_slist*;
  static constexpr curl_slist* null() { return nullptr; }
  static void destroy(curl_slist* list) noexcept { curl_slist_free_all(list); }
};

template <class Value>
void set(CURL* easy, CURLoption option, Value value) {
  const CURLcode code = curl_easy_setopt(easy, option, value);
  MS_ASSERT(code == CURLE_OK, "curl option {}: {}", static_cast<int>(option), curl_easy_strerror(code));
}

struct Received {
  std::string body;
  std::size_t total = 0;
};

std::size_t receive(char* data, std::size_t size, std::size_t count, void* user) {
  auto& received = *static_cast<Received*>(user);
  const std::size_t bytes = size * count;
  received.total += bytes;
  if (received.total > kMostReplyBytes) return 0;  // ends the transfer
  received.body.append(data, std::min(bytes, kKeptBytes - received.body.size()));
  return bytes;
}

}  // namespace

HttpReply http_post(const HttpRequest& request) {
  static const CURLcode kReady = curl_global_init(CURL_GLOBAL_DEFAULT);
  const Handle<EasyTraits> easy(kReady == CURLE_OK ? curl_easy_init() : nullptr);
  Handle<ListTraits> headers(curl_slist_append(nullptr, "Content-Type: application/json"));
  // Without "Expect: 100-continue", for which small servers make us wait.
  if (!easy || !headers || curl_slist_append(headers.get(), "Expect:") == nullptr) {
    return {.problem = "libcurl could not start"};
  }
  CURL* handle = easy.get();
  std::array<char, CURL_ERROR_SIZE> words{};
  Received received;
  set(handle, CURLOPT_ERRORBUFFER, words.data());
  set(handle, CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
  set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  set(handle, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
  set(handle, CURLOPT_FOLLOWLOCATION, 0L);
  set(handle, CURLOPT_SSL_VERIFYPEER, 1L);
  set(handle, CURLOPT_SSL_VERIFYHOST, 2L);
  set(handle, CURLOPT_PROXY, request.proxy.c_str());  // empty: none, also not the environment's
  set(handle, CURLOPT_NOPROXY, "");                   // the environment's no_proxy is ignored too
  set(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout_s * 1000));
  set(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.timeout_s * 1000));
  set(handle, CURLOPT_URL, request.url.c_str());
  set(handle, CURLOPT_USERAGENT, "ms-diag");
  set(handle, CURLOPT_HTTPHEADER, headers.get());
  set(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  set(handle, CURLOPT_POSTFIELDS, request.body.c_str());
  set(handle, CURLOPT_WRITEFUNCTION, receive);
  set(handle, CURLOPT_WRITEDATA, &received);

  const CURLcode code = curl_easy_perform(handle);
  if (received.total > kMostReplyBytes) return {.problem = "its reply does not end"};
  if (code != CURLE_OK) return {.problem = words[0] != '\0' ? words.data() : curl_easy_strerror(code)};
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  return {.status = static_cast<int>(status), .body = std::move(received.body)};
}

}  // namespace ms::notify
