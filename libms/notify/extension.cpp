// The door of libms_notify.so, by which ms-diag finds this room (health/commands/extension.h). What crosses it are
// plain structs and std:: types of the same build; both sides have their own copy of the rooms below, and of their log.
#include "health/commands/extension.h"

#include "base/version.h"
#include "notify/notify.h"

extern "C" const ms::health::NotifyExtension* ms_notify_extension() {
  static const ms::health::NotifyExtension kExtension{
      .version = ms::kVersion, .notify = ms::notify::notify, .page = ms::notify::notify_page};
  return &kExtension;
}
