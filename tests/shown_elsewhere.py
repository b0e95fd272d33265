"""The tests that show what the keys do which ``test_effects.py`` does not probe: by test, its keys.

A test is named by its path below tests/ and its function. ``test_effects.py`` checks that each exists.
"""

from __future__ import annotations

SHOWN_BY: dict[str, str] = {
    "external/test_data_juicer.py::test_rows_are_those_that_the_same_filters_of_rlctl_leave": """
        data.operators[]<external> data.operators[]<external>.kind data.operators[]<external>.args
        data.operators[]<external>.column
        service.data_juicer service.data_juicer.auto_start service.data_juicer.python service.data_juicer.port
    """,
    "external/test_data_juicer.py::test_responses_are_dropped_and_measured": """
        algorithm.experience_operators[]<external> algorithm.experience_operators[]<external>.kind
        algorithm.experience_operators[]<external>.args
    """,
    "external/test_data_juicer.py::test_a_service_that_runs_is_used_and_one_that_is_gone_is_named": """
        service.data_juicer.url
    """,
    "test_library.py::test_a_path_an_override_list_and_a_script_are_sources": """
        rlctl
    """,
    "runtime/test_launch.py::test_it_finishes_and_its_folder_tells_all_of_it": """
        run.folder model.path data.train data.train[].path algorithm.objective<rl> algorithm.advantage<grpo>
        algorithm.policy_loss<ppo_clip> rollout.engine<auto> rollout.engine<transformers> train.engine
        train.engine<fsdp2> rewards[]<rule> tracking tracking[]<console> runtime.ray.address
    """,
    "runtime/evaluation/test_losses.py::test_the_loss_on_held_out_answers_is_that_of_transformers": """
        data.eval[].messages_key
    """,
    "runtime/test_stopping.py::test_sessions_of_one_run": """
        run.max_steps_this_session
    """,
    "runtime/agents/test_environments.py::test_frozen_lake_is_played_to_its_goal": """
        rollout.agents[]<environment> rollout.agents[]<environment>.name rollout.agents[]<environment>.environment
        rollout.agents[]<environment>.environment<gymnasium> rollout.agents[]<environment>.environment<gymnasium>.id
        rollout.agents[]<environment>.environment<gymnasium>.args rollout.agents[]<environment>.actions
        rollout.agents[]<environment>.observation rollout.agents[]<environment>.template
    """,
    "runtime/agents/test_environments.py::test_a_text_without_a_valid_action_steps_nothing": """
        rollout.agents[]<environment>.action_pattern rollout.agents[]<environment>.invalid_action_reward
        rollout.agents[]<environment>.invalid_action_text rollout.agents[]<environment>.on_invalid_action
    """,
    "runtime/agents/test_environments.py::test_turns_and_tokens_end_an_episode_and_say_so": """
        rollout.agents[]<environment>.max_turns rollout.agents[]<tools>.on_token_limit
        rollout.agents[]<function>.on_token_limit rollout.agents[]<environment>.on_token_limit
        rollout.agents[]<program>.on_token_limit rollout.agents[]<tools>.on_turn_limit
        rollout.agents[]<function>.on_turn_limit rollout.agents[]<environment>.on_turn_limit
        rollout.agents[]<program>.on_turn_limit
    """,
    "runtime/agents/test_environments.py::test_the_last_turns_are_shown_in_one_message_and_each_turn_is_a_row": """
        rollout.agents[]<environment>.history_turns rollout.agents[]<environment>.history_template
        rollout.agents[]<environment>.environment<python> rollout.agents[]<environment>.environment<python>.path
        rollout.agents[]<environment>.environment<python>.name
    """,
    "runtime/agents/test_environments.py::test_members_of_a_group_have_one_seed_and_other_groups_another": """
        rollout.agents[]<environment>.environment<gymnasium>.seed
        rollout.agents[]<environment>.environment<python>.seed
    """,
    "runtime/agents/test_environments.py::test_credit_says_what_the_environments_rewards_are_worth": """
        rollout.agents[]<tools>.credit.reward rollout.agents[]<function>.credit.reward
        rollout.agents[]<environment>.credit.reward rollout.agents[]<program>.credit.reward
    """,
    "runtime/agents/test_environments.py::test_the_opening_has_the_rows_prompt_and_a_system_message": """
        rollout.agents[]<environment>.opening_template rollout.agents[]<environment>.system_prompt
        rollout.agents[]<environment>.environment<python>.args
    """,
    "runtime/agents/test_environments.py::test_a_random_model_plays_without_an_engine": """
        rollout.agents[]<tools>.model rollout.agents[]<function>.model rollout.agents[]<environment>.model
        rollout.agents[]<program>.model
    """,
    "runtime/agents/test_environments.py::test_samples_are_turns_or_must_be_one_trajectory": """
        rollout.agents[]<tools>.samples rollout.agents[]<function>.samples rollout.agents[]<environment>.samples
        rollout.agents[]<program>.samples
    """,
    "runtime/agents/test_environments.py::test_a_time_limit_ends_an_episode_after_a_turn": """
        rollout.agents[]<tools>.time_limit rollout.agents[]<function>.time_limit
        rollout.agents[]<environment>.time_limit rollout.agents[]<program>.time_limit
    """,
    "runtime/agents/test_environments.py::test_steps_at_the_same_time_are_limited": """
        rollout.agents[]<environment>.environment<gymnasium>.max_concurrent_steps
        rollout.agents[]<environment>.environment<python>.max_concurrent_steps
    """,
    "runtime/agents/test_environments.py::test_an_environment_that_misbehaves_fails_its_trajectory_and_the_next_one_works": """
        rollout.agents[]<environment>.environment<gymnasium>.isolation
        rollout.agents[]<environment>.environment<gymnasium>.timeout
        rollout.agents[]<environment>.environment<python>.isolation
        rollout.agents[]<environment>.environment<python>.timeout
        rollout.agents[]<environment>.environment<gymnasium>.memory_limit_mib
        rollout.agents[]<environment>.environment<python>.memory_limit_mib
    """,
    "runtime/agents/test_failing.py::test_what_becomes_of_trajectories_that_fail": """
        rollout.agents[]<tools>.on_failure rollout.agents[]<function>.on_failure
        rollout.agents[]<environment>.on_failure rollout.agents[]<program>.on_failure
    """,
    "runtime/agents/test_failing.py::test_a_run_ends_above_a_share_of_failures_and_says_what_failed": """
        rollout.agents[]<tools>.stop_run_above_failures rollout.agents[]<function>.stop_run_above_failures
        rollout.agents[]<environment>.stop_run_above_failures rollout.agents[]<program>.stop_run_above_failures
    """,
    "runtime/agents/test_failing.py::test_further_responses_replace_those_that_fail": """
        rollout.oversampling.additional_responses
    """,
    "runtime/agents/test_failing.py::test_sources_choose_agents_and_environments_give_rewards": """
        data.train[].agent data.eval[].agent rollout.agents[]<environment>.max_turn_tokens
    """,
    "runtime/agents/test_failing.py::test_a_functions_turns_are_limited": """
        rollout.agents[]<function>.max_turns rollout.agents[]<function>.max_turn_tokens
    """,
    "runtime/data/test_prompts.py::test_a_row_names_its_agent_whose_tools_its_prompt_shows": """
        data.train[].agent_key data.eval[].agent_key
    """,
    "runtime/algorithms/test_turns.py::test_gigpo_is_the_papers_equations": """
        algorithm.advantage<gigpo> algorithm.advantage<gigpo>.episode_weight algorithm.advantage<gigpo>.step_weight
        algorithm.advantage<gigpo>.gamma algorithm.advantage<gigpo>.normalize_by_std
        algorithm.advantage<gigpo>.epsilon
    """,
    "runtime/algorithms/test_turns.py::test_gigpo_compares_states_of_one_task_only_unless_it_is_told_otherwise": """
        algorithm.advantage<gigpo>.anchor_scope
    """,
    "runtime/algorithms/test_turns.py::test_step_reinforce_is_rolls_discounted_return_of_steps": """
        algorithm.advantage<step_reinforce> algorithm.advantage<step_reinforce>.gamma
    """,
    "runtime/algorithms/test_turns.py::test_segment_reinforce_reads_the_reward_at_the_end_of_each_turn": """
        algorithm.advantage<segment_reinforce> algorithm.advantage<segment_reinforce>.gamma
    """,
    "runtime/algorithms/test_turns.py::test_rewards_of_turns_at_their_ends_are_discounted_over_generated_tokens": """
        rollout.agents[]<tools>.credit.turns rollout.agents[]<function>.credit.turns
        rollout.agents[]<environment>.credit.turns rollout.agents[]<program>.credit.turns
    """,
    "runtime/algorithms/test_turns.py::test_gae_over_turns_is_gae_with_a_turn_as_the_step": """
        algorithm.advantage<gae>.level
    """,
    "runtime/algorithms/test_turns.py::test_step_wise_grpo_is_trinitys": """
        algorithm.advantage<step_wise_grpo> algorithm.advantage<step_wise_grpo>.divide_by_steps
        algorithm.advantage<step_wise_grpo>.std_over algorithm.advantage<step_wise_grpo>.drop_below_std
        algorithm.advantage<step_wise_grpo>.epsilon
    """,
    "runtime/algorithms/test_turns.py::test_a_segments_ratio_is_the_geometric_mean_of_its_tokens": """
        algorithm.policy_loss<ppo_clip>.ratio
    """,
    "runtime/train/test_losses.py::test_means_over_trajectories_count_each_once_however_many_rows_it_has": """
        algorithm.loss_aggregation.unit
    """,
    "runtime/agents/test_tools.py::test_rewards_of_tools_are_rewards_of_the_turn_that_called_them": """
        rollout.agents[]<tools>.credit.tool_rewards rollout.agents[]<tools>.tools[]<python>.reward
    """,
    "runtime/agents/test_tool_files.py::test_a_tool_file_rewards_calls_as_it_says_and_as_it_returns": """
        rollout.agents[]<tools>.tools[]<file>.reward
    """,
    "runtime/data/test_quality.py::test_rows_are_kept_by_what_a_judge_says_of_them": """
        data.operators[]<quality> data.operators[]<quality>.auxiliary_model data.operators[]<quality>.column
        data.operators[]<quality>.prompt data.operators[]<quality>.min data.operators[]<quality>.max
        data.operators[]<quality>.sampling data.operators[]<quality>.max_concurrent
    """,
    "runtime/data/test_quality.py::test_a_judge_that_fails_ends_the_run_before_it_begins": """
        data.operators[]<quality>.timeout
    """,
    "runtime/test_auxiliary.py::test_a_judge_asks_the_model_by_its_name": """
        rollout.auxiliary_models rollout.auxiliary_models[].path rollout.auxiliary_models[].name
        rewards[]<judge>.auxiliary_model
    """,
    "runtime/test_auxiliary.py::test_a_model_at_an_endpoint_is_called_with_its_own_name_and_key": """
        rollout.auxiliary_models[].base_url rollout.auxiliary_models[].api_key
    """,
    "runtime/agents/test_tools.py::test_a_call_is_answered_and_the_answer_read": """
        rollout.default_agent rollout.agents rollout.agents[]<tools> rollout.agents[]<tools>.name
        rollout.agents[]<tools>.tools rollout.agents[]<tools>.tools[]<python>
        rollout.agents[]<tools>.tools[]<python>.path rollout.agents[]<tools>.tools[]<python>.name
    """,
    "runtime/agents/test_tools.py::test_a_class_is_an_object_of_its_trajectory_and_is_released": """
        rollout.agents[]<tools>.tools[]<python>.args
    """,
    "runtime/agents/test_tools.py::test_tools_without_a_schema_or_with_one_name_are_refused": """
        rollout.agents[]<tools>.tools[]<python>.schema
    """,
    "runtime/agents/test_tools.py::test_a_format_that_the_template_does_not_write_is_refused": """
        rollout.agents[]<tools>.tool_format
    """,
    "runtime/agents/test_tools.py::test_calls_of_the_last_turn_are_not_run": """
        rollout.agents[]<tools>.max_turns
    """,
    "runtime/agents/test_tools.py::test_tokens_that_the_agent_inserts_count_towards_the_limit": """
        rollout.agents[]<tools>.max_turn_tokens
    """,
    "runtime/agents/test_tools.py::test_surplus_calls_are_answered_with_an_error": """
        rollout.agents[]<tools>.max_parallel_calls
    """,
    "runtime/agents/test_tools.py::test_a_long_answer_is_cut": """
        rollout.agents[]<tools>.max_tool_response_characters rollout.agents[]<tools>.tool_truncation
    """,
    "runtime/agents/test_tools.py::test_turns_with_answers_and_calls_are_limited": """
        rollout.agents[]<tools>.max_observations rollout.agents[]<tools>.max_calls
    """,
    "runtime/data/test_prompts.py::test_rows_choose_among_the_tools_of_their_agent_and_give_them_arguments": """
        rollout.agents[]<tools>.system_prompt rollout.agents[]<tools>.tool_selection_key
        rollout.agents[]<tools>.tool_args_key
    """,
    "runtime/agents/test_tools.py::test_a_tool_that_takes_too_long_is_given_up": """
        rollout.agents[]<tools>.tool_timeout
    """,
    "runtime/agents/test_runs.py::test_an_agent_that_calls_the_model_once_changes_no_result": """
        rollout.agents[]<function> rollout.agents[]<function>.name rollout.agents[]<function>.path
        rollout.agents[]<function>.function rollout.agents[]<function>.args
    """,
    "runtime/agents/test_programs.py::test_a_program_for_the_openai_client_is_trained_on_the_tokens_that_were_generated": """
        rollout.agents[]<program> rollout.agents[]<program>.name rollout.agents[]<program>.program
        rollout.agents[]<program>.tool_format rollout.agents[]<program>.program<python>
        rollout.agents[]<program>.program<python>.path rollout.agents[]<program>.program<python>.function
    """,
    "runtime/agents/test_programs.py::test_limits_are_the_servers": """
        rollout.agents[]<program>.max_turns rollout.agents[]<program>.max_turn_tokens
    """,
    "runtime/agents/test_programs.py::test_programs_beyond_the_limit_wait": """
        rollout.agents[]<program>.max_concurrent
    """,
    "runtime/agents/test_programs.py::test_the_endpoint_is_where_the_cluster_reaches_it": """
        rollout.agents[]<program>.listen rollout.agents[]<program>.program<python>.args
    """,
    "runtime/agents/test_programs.py::test_a_command_reads_the_row_and_prints_what_it_returns": """
        rollout.agents[]<program>.program<command> rollout.agents[]<program>.program<command>.command
        rollout.agents[]<program>.program<command>.env_vars rollout.agents[]<program>.program<command>.folder
    """,
    "runtime/agents/test_programs.py::test_a_service_is_asked_for_each_trajectory": """
        rollout.agents[]<program>.program<url> rollout.agents[]<program>.program<url>.url
    """,
    "runtime/agents/test_mcp.py::test_a_server_is_started_and_its_tools_are_called": """
        rollout.agents[]<tools>.tools[]<mcp> rollout.agents[]<tools>.tools[]<mcp>.command
        rollout.agents[]<tools>.tools[]<mcp>.reward
        rollout.agents[]<tools>.tools[]<mcp>.env_vars
    """,
    "runtime/agents/test_mcp.py::test_a_server_is_reached_by_its_address_and_some_of_its_tools_are_shown": """
        rollout.agents[]<tools>.tools[]<mcp>.url rollout.agents[]<tools>.tools[]<mcp>.tools
    """,
    "runtime/agents/test_tool_files.py::test_marked_functions_are_tools_with_the_schema_of_their_signature": """
        rollout.agents[]<tools>.tools[]<file> rollout.agents[]<tools>.tools[]<file>.path
    """,
    "runtime/agents/test_confined.py::test_a_confined_function_reaches_its_folder_and_nothing_else": """
        rollout.agents[]<tools>.tools[]<python>.trusted
    """,
    "runtime/agents/test_confined.py::test_a_call_that_passes_a_limit_costs_only_itself": """
        rollout.agents[]<tools>.tools[]<python>.memory_limit_mib
    """,
    "runtime/test_failures.py::test_a_reward_that_raises": """
        run.on_end run.on_failure rewards[]<rule>.on_error rewards[]<function>.on_error
    """,
    "runtime/test_stopping.py::test_the_stop_file_a_limit_of_time_and_a_limit_of_steps_end_the_run_after_its_step": """
        run.time_limit
    """,
    "runtime/test_lost_node.py::test_a_node_that_is_lost_costs_the_steps_since_the_last_checkpoint": """
        run.max_restarts
    """,
    "runtime/experience/test_recorded.py::test_a_replayed_run_is_the_one_that_dumped": """
        run.skip.rollout run.skip.folder
    """,
    "runtime/data/test_tokenizer.py::test_loads_from_a_folder_with_the_template_of_the_config": """
        model.tokenizer model.chat_template
    """,
    "runtime/train/test_replay.py::test_tokens_go_to_the_experts_that_are_given_in_every_layout": """
        model.attention reference.model.attention critic.model.attention
    """,
    "runtime/data/test_prompts.py::test_template_arguments_and_tools_reach_the_template": """
        model.chat_template_args data.train[].tools_key data.eval[].tools_key
    """,
    "runtime/test_hostile_files.py::test_code_in_a_model_folder_runs_only_where_it_is_trusted": """
        model.trust_remote_code data.trust_remote_code reference.model.trust_remote_code
        rewards[]<model>.trust_remote_code critic.model.trust_remote_code
    """,
    "runtime/test_images_learn.py::test_what_reads_no_images_is_refused_before_the_run": """
        model.modality
    """,
    "runtime/workers/test_judge.py::test_what_the_engine_is_made_with": """
        model.max_context_tokens rollout.memory.max_num_seqs rewards[]<judge>.max_concurrent
    """,
    "runtime/data/test_sources.py::test_format_overrides_the_ending": """
        data.train[].format data.eval[].format
    """,
    "runtime/data/test_sources.py::test_folder_with_splits_takes_train_unless_told": """
        data.train[].split data.eval[].split
    """,
    "runtime/data/test_database.py::test_a_table_is_read_in_the_order_of_its_key": """
        data.train[].subset data.eval[].subset
    """,
    "runtime/data/test_sources.py::test_max_samples_takes_the_first": """
        data.train[].max_samples data.eval[].max_samples
    """,
    "runtime/data/test_prompts.py::test_messages_as_json_text": """
        data.train[].prompt_key data.train[].prompt_type data.eval[].prompt_key data.eval[].prompt_type
    """,
    "runtime/data/test_prompts.py::test_system_prompts": """
        data.train[].system_prompt data.train[].system_prompt_key data.eval[].system_prompt
        data.eval[].system_prompt_key
    """,
    "runtime/data/test_prompts.py::test_a_named_answer_column": """
        data.train[].answer_key data.eval[].answer_key
    """,
    "runtime/data/test_sft.py::test_raw_text_gets_the_end_token": """
        data.train[].response_key
    """,
    "runtime/data/test_sft.py::test_last_turn_only": """
        data.train[].messages_key data.multi_turn_loss algorithm.objective<sft>
    """,
    "runtime/data/test_prompts.py::test_source_tag_and_extra": """
        data.train[].source_key data.train[].tag_key data.train[].extra_key data.train[].reward
        data.train[].reward_args data.eval[].source_key data.eval[].tag_key data.eval[].extra_key
        data.eval[].reward data.eval[].reward_args
    """,
    "runtime/data/test_prompts.py::test_a_column_that_is_not_text_is_refused_and_its_absence_is_not": """
        data.train[].image_key data.train[].video_key data.train[].audio_key data.eval[].image_key
        data.eval[].video_key data.eval[].audio_key
    """,
    "runtime/test_modes.py::test_a_run_that_only_evaluates_trains_nothing": """
        data.eval[].path data.eval[].responses_per_prompt
    """,
    "runtime/data/test_sources.py::test_names": """
        data.eval[].name
    """,
    "runtime/data/test_prompts.py::test_overlong_prompts_stop_the_run_before_it_starts": """
        data.max_prompt_tokens
    """,
    "runtime/data/test_prompts.py::test_overlong_prompts_are_dropped_and_counted": """
        data.overlong_prompts
    """,
    "runtime/data/test_prompts.py::test_overlong_prompts_are_cut_and_marked": """
        data.truncation
    """,
    "runtime/data/test_prompts.py::test_processes_measure_what_one_would": """
        data.filter_workers
    """,
    "runtime/data/test_custom.py::test_its_rows_are_prompts_with_their_answers": """
        data.loader_workers data.custom data.custom.path data.custom.class_name
    """,
    "runtime/data/test_operators.py::test_filters_of_rows": """
        data.operators data.operators[]<length> data.operators[]<length>.min data.operators[]<length>.max data.operators[]<length>.unit data.operators[]<length>.column
        data.operators[]<language> data.operators[]<language>.scripts data.operators[]<language>.min_share data.operators[]<language>.column
        data.operators[]<duplicates> data.operators[]<duplicates>.lowercase data.operators[]<duplicates>.ignore_non_character data.operators[]<duplicates>.column
        data.operators[]<alphanumeric> data.operators[]<alphanumeric>.min_ratio data.operators[]<alphanumeric>.max_ratio data.operators[]<alphanumeric>.column
        data.operators[]<special_characters> data.operators[]<special_characters>.min_ratio data.operators[]<special_characters>.max_ratio
        data.operators[]<special_characters>.column data.operators[]<repetition> data.operators[]<repetition>.rep_len data.operators[]<repetition>.min_ratio
        data.operators[]<repetition>.max_ratio data.operators[]<repetition>.column
        data.operators[]<pass_rate> data.operators[]<pass_rate>.min data.operators[]<pass_rate>.max data.operators[]<pass_rate>.column
    """,
    "runtime/data/test_operators.py::test_an_operator_of_the_users_changes_rows": """
        data.operators[]<function> data.operators[]<function>.path data.operators[]<function>.function data.operators[]<function>.args
    """,
    "runtime/data/test_operators.py::test_priority_sorts_and_cuts": """
        data.priority data.priority.keep data.priority.weights.difficulty data.priority.weights.diversity
        data.priority.weights.usage_frequency data.priority.weights.quality
    """,
    "runtime/data/test_operators.py::test_files_stand_for_the_first_data_set_and_a_copy_is_written": """
        data.operators_input data.operators_output
    """,
    "runtime/data/test_open.py::test_easy_to_hard_reads_its_columns": """
        data.curriculum.keys
    """,
    "runtime/data/test_open.py::test_held_out_sets": """
        data.shuffle_evaluation
    """,
    "runtime/evaluation/test_evaluation.py::test_the_size_of_a_batch_changes_no_number": """
        data.evaluation_batch_prompts
    """,
    "runtime/data/test_sft.py::test_overlong_sequences": """
        data.max_sequence_tokens data.sequence_truncation
    """,
    "runtime/workers/test_sharding.py::test_balance_evens_out_tokens": """
        batch.balance
    """,
    "runtime/experience/test_shaping.py::test_what_the_rollout_engine_does_not_tell_is_not_left_to_it": """
        algorithm.old_log_probs
    """,
    "runtime/train/test_replay.py::test_one_update_a_step_has_a_pass_before_it_that_records": """
        algorithm.router_replay
    """,
    "runtime/experience/test_shaping.py::test_groups_are_left_out_before_they_are_trained_on": """
        algorithm.filters[]<zero_variance_groups> algorithm.filters[]<group_mean> algorithm.filters[]<overlong>
    """,
    "runtime/experience/test_operators.py::test_filters_keep_what_trinitys_keep": """
        algorithm.experience_operators algorithm.experience_operators[]<reward_filter> algorithm.experience_operators[]<reward_filter>.threshold
        algorithm.experience_operators[]<reward_std_filter> algorithm.experience_operators[]<reward_std_filter>.threshold
        algorithm.experience_operators[]<dapo_dynamic_sampling> algorithm.experience_operators[]<dapo_dynamic_sampling>.metric
        algorithm.experience_operators[]<dapo_dynamic_sampling>.correct_threshold
    """,
    "runtime/experience/test_operators.py::test_rewards_are_shaped_as_trinity_shapes_them": """
        algorithm.experience_operators[]<reward_shaping_mapper> algorithm.experience_operators[]<reward_shaping_mapper>.reward_shaping_configs
        algorithm.experience_operators[]<reward_shaping_mapper>.reward_shaping_configs[].stats_key
        algorithm.experience_operators[]<reward_shaping_mapper>.reward_shaping_configs[].op_type
        algorithm.experience_operators[]<reward_shaping_mapper>.reward_shaping_configs[].weight
    """,
    "runtime/experience/test_operators.py::test_pass_rates_are_measured_at_their_place_and_reported_as_trinity_does": """
        algorithm.experience_operators[]<pass_rate_calculator>
    """,
    "runtime/experience/test_operators.py::test_a_reward_that_failed_or_is_no_number_is_invalid": """
        algorithm.experience_operators[]<invalid_reward_filter>
    """,
    "runtime/experience/test_operators.py::test_an_operator_of_the_users_keeps_changes_and_counts": """
        algorithm.experience_operators[]<function> algorithm.experience_operators[]<function>.path algorithm.experience_operators[]<function>.function algorithm.experience_operators[]<function>.args
    """,
    "runtime/experience/test_operators.py::test_dropped_groups_are_made_up_for_where_that_is_asked": """
        algorithm.experience_operators[]<reward_filter>.refill algorithm.experience_operators[]<reward_std_filter>.refill algorithm.experience_operators[]<dapo_dynamic_sampling>.refill
        algorithm.experience_operators[]<invalid_reward_filter>.refill algorithm.experience_operators[]<function>.refill
    """,
    "runtime/experience/test_shaping.py::test_masks_of_roll": """
        algorithm.filters[]<difficulty_mask> algorithm.filters[]<long_incorrect>
    """,
    "runtime/rollout/test_vllm.py::test_a_response_depends_on_its_seed_and_place_only": """
        rollout.sampling.seed
    """,
    "runtime/rollout/test_vllm.py::test_arguments_are_checked_before_anything_starts": """
        rollout.precision
    """,
    "runtime/rollout/test_vllm.py::test_the_engine_was_started_with_what_the_config_says": """
        rollout.engine<vllm>
    """,
    "runtime/rollout/test_sglang.py::test_arguments_of_the_server": """
        rollout.engine<sglang>
    """,
    "runtime/rollout/test_external.py::test_a_run_that_only_evaluates_asks_it": """
        rollout.engine<external>
    """,
    "runtime/rollout/test_vllm_gpu.py::test_sleep_gives_the_memory_to_training_and_new_weights_bring_it_back": """
        rollout.memory.sleep_level
    """,
    "runtime/test_offline.py::test_a_data_set_is_answered_and_then_scored": """
        rollout.responses_folder rollout.evaluation_folder
    """,
    "runtime/train/megatron/test_moving_between_engines.py::test_one_process_exports_what_workers_of_any_layout_saved": """
        train.engine<fsdp2>.fsdp_size reference.engine<fsdp2>.fsdp_size critic.engine<fsdp2>.fsdp_size
    """,
    "runtime/train/test_fsdp.py::test_how_weights_are_spread_does_not_change_an_update": """
        train.engine<fsdp2>.cpu_offload_policy train.engine<fsdp2>.reshard_after_forward
        train.engine<fsdp2>.forward_prefetch train.engine<fsdp2>.wrap_min_parameters
        train.engine<fsdp2>.wrap_layers reference.engine<fsdp2>.cpu_offload_policy
        reference.engine<fsdp2>.reshard_after_forward reference.engine<fsdp2>.forward_prefetch
        reference.engine<fsdp2>.wrap_min_parameters reference.engine<fsdp2>.wrap_layers
        critic.engine<fsdp2>.cpu_offload_policy critic.engine<fsdp2>.reshard_after_forward
        critic.engine<fsdp2>.forward_prefetch critic.engine<fsdp2>.wrap_min_parameters
        critic.engine<fsdp2>.wrap_layers
    """,
    "runtime/train/test_memory_of_fsdp.py::test_a_step_on_cpu_allocates_what_is_estimated": """
        train.precision.parameters train.precision.compute train.precision.reduce
        train.memory.recompute_activations reference.precision reference.precision.parameters
        reference.precision.compute reference.precision.reduce critic.precision.parameters
        critic.precision.compute critic.precision.reduce critic.memory.recompute_activations
    """,
    "runtime/train/test_model.py::test_modules_are_imported": """
        model.import_modules reference.model.import_modules critic.model.import_modules
    """,
    "runtime/sync/test_machine.py::test_adapters_alone_are_sent_to_an_engine_that_adds_them": """
        model.lora.merge_for_rollout
    """,
    "runtime/train/test_lora.py::test_an_update_from_an_adapter_is_that_of_peft": """
        model.lora.adapter_path critic.model.lora.adapter_path
    """,
    "runtime/train/test_gpu.py::test_an_engine_at_rest_leaves_the_gpu": """
        train.engine<fsdp2>.offload train.memory.empty_cache reference.engine<fsdp2>.offload
        critic.engine<fsdp2>.offload critic.memory.empty_cache
    """,
    "runtime/train/test_gpu.py::test_speed_and_memory_do_not_change_a_step": """
        train.memory.offload_activations train.compile reference.compile critic.memory.offload_activations
        critic.compile
    """,
    "runtime/train/test_model.py::test_log_probs_without_whole_logits_train_the_same": """
        train.fused_kernels.enabled critic.fused_kernels.enabled
    """,
    "runtime/train/test_model.py::test_kernels_that_are_not_here_are_refused": """
        train.fused_kernels.liger critic.fused_kernels.liger
    """,
    "runtime/train/test_fsdp.py::test_prompts_that_are_computed_once_do_not_change_an_update": """
        train.fused_kernels.prefix_grouping critic.fused_kernels.prefix_grouping
    """,
    "planning/test_plan.py::test_a_reference_that_does_not_divide_its_devices_is_refused_under_its_own_key": """
        reference.engine<fsdp2>.ulysses_sequence_parallel_size reference.engine reference.engine<fsdp2>
    """,
    "runtime/train/test_model.py::test_overrides_go_over_config_json": """
        reference.model.overrides
    """,
    "runtime/train/test_model.py::test_rotary_embeddings_are_those_of_transformers": """
        reference.model.rope.theta reference.model.rope.scaling
    """,
    "runtime/train/test_fsdp.py::test_an_update_is_a_plain_adamw_step_in_float64": """
        train.optimizer.max_grad_norm critic.optimizer.max_grad_norm
    """,
    "runtime/train/test_checkpoint.py::test_the_schedule_is_the_checkpoints_or_the_configs": """
        train.lr_scheduler.restore_from_checkpoint
        critic.lr_scheduler.restore_from_checkpoint
    """,
    "runtime/train/test_lora.py::test_reentrant_recomputation_trains_adapters_too": """
        train.memory.recompute_reentrant critic.memory.recompute_reentrant
    """,
    "runtime/train/megatron/test_runs_of_megatron.py::test_a_run_has_the_numbers_of_fsdp2": """
        train.engine<megatron>
    """,
    "runtime/train/megatron/test_starting.py::test_weights_are_those_of_megatron_core": """
        train.engine<megatron>.checkpoint_path
    """,
    "runtime/train/megatron/test_starting.py::test_experts_are_read_too_from_a_folder_of_megatron_lm": """
        reference.engine<megatron>.checkpoint_path
    """,
    "runtime/train/megatron/test_starting.py::test_a_critic_starts_from_a_policy_or_a_critic": """
        critic.engine<megatron>.checkpoint_path
    """,
    "runtime/train/megatron/test_engine.py::test_a_router_that_is_frozen_stays": """
        train.engine<megatron>.moe.freeze_router critic.engine<megatron>.moe.freeze_router
    """,
    "runtime/train/megatron/test_preflight_of_megatron.py::test_a_run_that_megatron_cannot_do_is_refused": """
        critic.engine<megatron> reference.engine<megatron>
    """,
    "runtime/remote/test_files.py::test_models_of_a_config_and_of_its_stages_are_brought": """
        reference.model reference.model.path
    """,
    "runtime/workers/test_reward.py::test_routing_by_source_and_tag": """
        rewards[]<rule>.applies_to rewards[]<function>.applies_to rewards[]<model>.applies_to
        rewards[]<judge>.applies_to rewards[]<sandbox>.applies_to
    """,
    "runtime/workers/test_reward.py::test_a_hanging_function_counts_as_zero_in_time": """
        rewards[]<rule>.timeout rewards[]<function>.timeout
    """,
    "runtime/workers/test_reward_model.py::test_a_model_beside_a_rule_over_several_workers": """
        rewards[]<rule>.workers rewards[]<function>.workers
    """,
    "runtime/workers/test_reward.py::test_rewards_are_weighed_and_added": """
        rewards[]<rule>.args rewards[]<function>.weight rewards[]<model>.weight rewards[]<judge>.weight
        rewards[]<sandbox>.weight
    """,
    "runtime/rewards/test_run.py::test_all_kinds_of_rewards_in_one_run": """
        rewards[]<function> rewards[]<model> rewards[]<judge>
    """,
    "runtime/workers/test_reward_model.py::test_templates_and_tokenizers_of_ones_own": """
        rewards[]<model>.path rewards[]<model>.tokenizer rewards[]<model>.chat_template
    """,
    "runtime/workers/test_reward_model.py::test_the_number_is_that_of_transformers_for_the_text": """
        rewards[]<model>.max_tokens rewards[]<model>.micro_batch_size
    """,
    "runtime/rewards/test_judge.py::test_a_slow_answer_and_a_dead_endpoint_cost_their_responses": """
        rewards[]<judge>.timeout
    """,
    "runtime/test_endpoints.py::test_one_that_answers_and_serves_the_model_is_passed_over": """
        rewards[]<judge>.api_key
    """,
    "runtime/rewards/test_sandbox_fusion.py::test_requests_are_those_of_sandbox_fusion": """
        rewards[]<sandbox>
    """,
    "runtime/rewards/test_sandbox_fusion.py::test_so_many_requests_at_once_and_no_more": """
        rewards[]<sandbox>.max_concurrent
    """,
    "runtime/schedules/test_scheduler.py::test_scoring_goes_on_beside_rollout_and_no_further_than_it_may": """
        reward_loop.max_queued
    """,
    "planning/test_arithmetic.py::test_layouts_share_out_the_devices": """
        placement.roles{}.devices
    """,
    "runtime/test_apart.py::test_a_run_explores_and_another_trains_on_what_it_left": """
        buffer buffer<memory>.log_path buffer<sql>.url buffer<file>.path buffer<sql> buffer<file>
    """,
    "runtime/data/test_pairs.py::test_every_form_of_a_pair": """
        data.train[].chosen_key data.train[].rejected_key
    """,
    "runtime/test_apart.py::test_responses_that_are_too_old_are_not_trained_on": """
        algorithm.sample_strategy algorithm.sample_strategy_args
    """,
    "planning/test_plan.py::test_roles_follow_the_algorithm": """
        critic critic.engine critic.engine<fsdp2>
    """,
    "runtime/checkpoints/test_checkpoint.py::test_of_the_last_checkpoints_fewer_keep_their_critic_and_all_stay_whole": """
        checkpoint.keep_last_critic checkpoint.keep_last
    """,
    "runtime/test_objectives.py::test_stages_of_every_objective_inherit_what_they_do_not_set": """
        checkpoint.at_end
    """,
    "runtime/checkpoints/test_resume_path.py::test_the_schedule_of_another_run_is_taken_up_and_told": """
        checkpoint.resume checkpoint.resume_path
    """,
    "runtime/test_saving_beside.py::test_what_is_exported_beside_training_is_what_was_there_when_it_began": """
        checkpoint.export checkpoint.asynchronous
    """,
    "runtime/test_build.py::test_checkpoints_are_in_the_run_folder_or_where_the_config_says": """
        checkpoint.folder
    """,
    "runtime/remote/test_files.py::test_checkpoints_go_to_the_url_and_come_back": """
        checkpoint.remote
    """,
    "runtime/train/test_checkpoint.py::test_contents_are_chosen_in_writing_and_in_reading": """
        checkpoint.save_contents checkpoint.load_contents
    """,
    "runtime/checkpoints/test_checkpoint.py::test_one_that_was_loaded_is_deleted_only_where_its_own_copy_is_whole": """
        checkpoint.delete_after_load
    """,
    "runtime/checkpoints/test_checkpoint.py::test_the_previous_one_makes_room_where_that_is_asked_for": """
        checkpoint.delete_previous
    """,
    "runtime/train/test_checkpoint.py::test_writers_take_turns": """
        checkpoint.writers
    """,
    "runtime/sync/test_runs.py::test_a_sync_that_takes_too_long_is_told_with_what_did_not_come": """
        weight_sync.timeout
    """,
    "runtime/tracking/test_trackers.py::test_tensorboard_folder_of_the_config": """
        tracking[]<tensorboard>.folder tracking[]<tensorboard>
    """,
    "runtime/tracking/test_trackers.py::test_swanlab_offline_keeps_files": """
        tracking[]<swanlab>.mode tracking[]<swanlab>.folder tracking[]<swanlab>.api_key tracking[]<swanlab>
    """,
    "runtime/tracking/test_trackers.py::test_wandb_offline_keeps_files": """
        tracking[]<wandb>.mode tracking[]<wandb>.base_url tracking[]<wandb>.api_key tracking[]<wandb>.args
        tracking[]<wandb>
    """,
    "runtime/tracking/test_trackers.py::test_mlflow_is_queried_back_and_a_second_launch_goes_on": """
        tracking[]<mlflow>.uri tracking[]<mlflow>.username tracking[]<mlflow>.password tracking[]<mlflow>
    """,
    "runtime/test_whole_nodes.py::test_a_cluster_whose_nodes_are_too_small_is_told": """
        runtime.ray.num_cpus
    """,
    "runtime/test_launch.py::test_workers_that_never_start_end_the_run": """
        runtime.ray.init_args runtime.ray.startup_timeout
    """,
    "runtime/processes/test_group.py::test_a_call_that_takes_too_long_is_given_up": """
        runtime.ray.call_timeout
    """,
    "runtime/profiling/test_runs.py::test_a_run_tells_where_its_time_went_and_shows_its_responses": """
        profiling.peak_tflops profiling.tool profiling.roles profiling.roles{}.enabled
        rollout.log_evaluation_responses
    """,
    "runtime/processes/test_environment.py::test_logs_are_copied_as_they_grow": """
        runtime.log_folder
    """,
    "runtime/test_cluster_runs.py::test_an_attached_run_has_workers_on_every_node": """
        profiling.ray_timeline
    """,
    "runtime/profiling/test_steps.py::test_torch_traces_are_of_the_roles_that_are_named": """
        profiling.steps profiling.roles{}.args profiling.worker_args
    """,
    "runtime/profiling/test_steps.py::test_neighbours_are_in_one_file_where_that_is_asked_for": """
        profiling.continuous profiling.folder
    """,
    "runtime/profiling/test_steps.py::test_ranks_are_chosen_by_role": """
        profiling.roles{}.all_ranks profiling.roles{}.ranks
    """,
    "runtime/profiling/test_steps.py::test_a_discrete_trace_is_of_one_call": """
        profiling.roles{}.discrete
    """,
    "runtime/profiling/test_steps.py::test_the_controller_is_profiled_where_it_has_settings": """
        profiling.controller_args
    """,
    "runtime/profiling/test_runs.py::test_responses_are_shown_where_that_is_asked_for": """
        rollout.log_responses
    """,
    "runtime/schedules/test_exploration.py::test_further_prompts_beside_a_step_take_no_more_room_than_the_buffer_has": """
        buffer<memory>
    """,
    "runtime/data/test_pairs.py::test_experts_are_read_from_the_auxiliary_buffer": """
        buffer<memory>.auxiliary buffer<sql>.auxiliary buffer<file>.auxiliary buffer<memory>.auxiliary{}.path
        buffer<memory>.auxiliary{}.prompt_key buffer<memory>.auxiliary{}.response_key
        buffer<memory>.auxiliary{}.messages_key buffer<memory>.auxiliary{}.prompt_type
        buffer<memory>.auxiliary{}.settings buffer<sql>.auxiliary{}.path buffer<sql>.auxiliary{}.prompt_key
        buffer<sql>.auxiliary{}.response_key buffer<sql>.auxiliary{}.messages_key
        buffer<sql>.auxiliary{}.prompt_type buffer<sql>.auxiliary{}.settings buffer<file>.auxiliary{}.path
        buffer<file>.auxiliary{}.prompt_key buffer<file>.auxiliary{}.response_key
        buffer<file>.auxiliary{}.messages_key buffer<file>.auxiliary{}.prompt_type
        buffer<file>.auxiliary{}.settings
    """,
    "runtime/test_apart.py::test_a_buffer_that_nobody_fills_is_waited_for_only_so_long": """
        buffer<memory>.read_timeout buffer<sql>.read_timeout buffer<file>.read_timeout
    """,
    "runtime/data/test_database.py::test_experts_come_from_a_table_too": """
        buffer<memory>.auxiliary{}.format buffer<sql>.auxiliary{}.format buffer<file>.auxiliary{}.format
    """,
    "runtime/buffers/test_sql.py::test_labels_keep_buffers_apart": """
        buffer<memory>.label buffer<sql>.label
    """,
    "runtime/test_apart.py::test_an_online_run_replays_and_keeps_a_copy": """
        buffer<memory>.capacity buffer<memory>.replay.enabled buffer<memory>.replay.priority_args
        buffer<sql>.capacity buffer<sql>.replay.enabled buffer<sql>.replay.priority_args
    """,
    "runtime/buffers/test_memory.py::test_a_group_is_used_as_often_as_the_rule_allows": """
        buffer<memory>.replay.cooldown buffer<sql>.replay.cooldown
    """,
}
