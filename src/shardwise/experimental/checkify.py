"""`shardwise.experimental.checkify`: checks that work in compiled functions."""

from shardwise.transforms.checks.checkify import all_checks as all_checks
from shardwise.transforms.checks.checkify import automatic_checks as automatic_checks
from shardwise.transforms.checks.checkify import checkify as checkify
from shardwise.transforms.checks.checkify import div_checks as div_checks
from shardwise.transforms.checks.checkify import empty_checks as empty_checks
from shardwise.transforms.checks.checkify import float_checks as float_checks
from shardwise.transforms.checks.checkify import index_checks as index_checks
from shardwise.transforms.checks.checkify import nan_checks as nan_checks
from shardwise.transforms.checks.checkify import user_checks as user_checks
from shardwise.transforms.checks.checkify_errors import Error as Error
from shardwise.transforms.checks.checkify_errors import JaxException as JaxException
from shardwise.transforms.checks.checkify_errors import JaxRuntimeError as JaxRuntimeError
from shardwise.transforms.checks.checkify_errors import check as check
from shardwise.transforms.checks.checkify_errors import check_error as check_error
from shardwise.transforms.checks.checkify_errors import debug_check as debug_check
from shardwise.transforms.checks.checkify_errors import init_error as init_error

ErrorCategory = type[JaxException]
