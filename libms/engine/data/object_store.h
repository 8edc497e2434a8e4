// Objects of a store with S3's API, which a path "s3://BUCKET/KEY" names: AWS, or another server that AWS_ENDPOINT_URL
// names (Ceph, MinIO). Buckets are in the path of a URL, not in the name of its host.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "data/http_get.h"

namespace ms::data {

bool is_object(std::string_view path);

// Where the store is, and who asks. Without an id, requests are not signed: of public buckets.
struct ObjectStore {
  std::string endpoint;  // "https://host", without a slash at its end
  std::string region;
  std::string id, secret, session_token;
  std::string ca_bundle;
};

// Reads the variables of AWS's own tools: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION,
// AWS_CA_BUNDLE, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; without the last three the profile
// AWS_PROFILE of AWS_SHARED_CREDENTIALS_FILE (default: ~/.aws/credentials). Error("data.object", user): an id without
// its secret, or AWS_PROFILE is not in the file.
ObjectStore object_store_of(const std::function<const char*(const char*)>& environment);

// Some bytes of an object.
struct ObjectPart {
  std::string bytes;
  std::int64_t object_bytes = 0;
  std::string etag;
};

struct ObjectRequest {
  std::string path;
  std::int64_t begin = 0, count = 0;
  std::string etag = {};     // what the object must have; empty: any
  double patience_s = 120;   // for all tries of the request
  bool is_optional = false;  // an object that this key may not see is as one that does not exist
};

// Reads up to `count` bytes from `begin` on. Repeats a request that fails for now (no connection, 429, 5xx, a reply
// that is cut) with growing pauses. nullopt: there is no such object. Error("data.object"), storage: it was replaced,
// or the store does not answer, or answers with other bytes; user: access is denied, or the request is refused
// otherwise.
std::optional<ObjectPart> read_object(HttpConnection& connection, const ObjectStore& store,
                                      const ObjectRequest& request, const std::stop_token& stop = {});

}  // namespace ms::data
