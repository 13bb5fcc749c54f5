"""What every Client must do, as checks that run on the server in memory and on a real one.

Each check is given a client and a place of its own: a namespace, and what only the outside can do
there. Run by test_client_twins.py and by tests/cluster/test_client_twins_real.py. Where the two
differ, the real one is right.
"""

from __future__ import annotations

import pytest

# Before they are imported, so that a failure shows what was compared.
pytest.register_assert_rewrite("kube.twins_change", "kube.twins_create", "kube.twins_watch")

from kube import twins_change, twins_create, twins_watch  # noqa: E402  # see above

CHECKS = (
    twins_create.created_object_has_an_identity,
    twins_create.generated_names_differ,
    twins_create.taken_name_is_already_exists,
    twins_create.missing_object_is_not_found,
    twins_create.missing_kind_is_not_found,
    twins_create.other_namespace_in_the_manifest_is_refused,
    twins_create.invalid_pod_names_its_fields,
    twins_create.names_have_lengths,
    twins_create.dry_run_stores_nothing,
    twins_create.quota_refuses_pods_over_it,
    twins_create.headless_service_and_config_map_are_plain,
    twins_create.lease_keeps_microseconds,
    twins_create.event_must_be_complete_and_may_only_be_counted,
    twins_create.wrong_types_are_bad_requests,
    twins_create.unknown_fields_of_a_pod_are_said_and_left_out,
    twins_create.container_names_every_mistake,
    twins_change.status_and_spec_are_written_apart,
    twins_change.write_that_changes_nothing_keeps_the_version,
    twins_change.stale_version_conflicts,
    twins_change.wrong_uid_in_a_patch_is_invalid,
    twins_change.merge_removes_with_null,
    twins_change.json_patch_may_test_first,
    twins_change.apply_makes_sets_and_takes_back,
    twins_change.apply_of_a_status_takes_back_too,
    twins_change.pod_keeps_its_spec,
    twins_change.pod_status_is_the_kubelets,
    twins_change.delete_means_that_very_object,
    twins_change.pod_on_a_node_leaves_slowly,
    twins_change.finished_pod_leaves_at_once,
    twins_change.finalizer_keeps_an_object,
    twins_change.objects_of_a_deleted_owner_go,
    twins_watch.page_by_page_is_one_moment,
    twins_watch.rest_of_a_list_expires,
    twins_watch.selectors_choose_by_label_and_field,
    twins_watch.watch_tells_every_change_in_order,
    twins_watch.watch_that_is_open_tells_what_happens_then,
    twins_watch.watch_follows_its_selector,
    twins_watch.watch_from_zero_begins_with_what_there_is,
    twins_watch.watch_from_too_old_a_version_is_expired,
    twins_watch.watch_ends_when_asked_with_a_bookmark,
)
