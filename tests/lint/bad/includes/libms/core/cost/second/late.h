#include "cost/first/early.h"
#include "cost/model.h"
