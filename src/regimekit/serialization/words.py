"""Words that headers are made of, so that deflate need not be told them by every snapshot.

They belong to their formats for good: bytes packed with other words cannot be read. A word that
is not here costs its letters, nothing else. What is most often met stands last.
"""

from __future__ import annotations

_PLAIN = (
    '"hazard":0.01,"max_run_lengths":100,"emission":"linear_gaussian","weight":"none",'
    '"threshold":2.0,"error_sd":1.0,"period":"regime_features":null,"trail_limit":"announcer":'
    '"dropped":"latest_dropped":"gap":0,"book_start":[100],"book_visits":[100],"book_log_mass":'
    '[100],"book_log_best":[100],"rows_0":"rows_1":"trail":"squares":"ensemble/","columns":'
    '{"term":"columns","names":{"term":"lags","steps":{"term":"season","period":"harmonics":1}'
    '"first_x":[],"units/covariates":[200,"work_variance":"work_coefficients":"work_log_weight":'
    '"row_variance":"row_coefficients":"row_log_weight":"cloud":'
)
_REGIMES = (
    '"model":"auto","model":"garch_ihmm","model":"wolf_ihmm","model":"ihmm","model":"bocd",'
    '{"magic":"regimekit snapshot","format":2,"model":"br_ihmm","state":2,"settings":{"noise":1.0,'
    '"model":"student_t_ihmm","state":2,"settings":{'
    '"prior_mean":0.0,"prior_var":100.0,"noise_shape":5.0,"noise_scale":5.0,"consistent":true,'
    '"features":[{"term":"intercept"}],"units":"given","units":"auto","batch":6,"threshold":null,'
    '"weight":"contamination","weight":null,"weigh_regimes":true,"outlier_rate":0.05,'
    '"particles":100,"islands":null,"ess_threshold":0.5,"max_regimes":30,"prune_pool":5,'
    '"rule":"default","resampling":null,"structure_sweeps":null,"structure_share":null,'
    '"sticky":10.0,"sticky":null,"alpha_prior":[1.0,1.0],"gamma_prior":null,'
    '"outlier_weight":0.2,"dim":1,"dim":null,"seed":0},"values":{"reported":0,"changed":0,'
    '"told":[0,1,2,3],"rng":{"bit_generator":"PCG64","state":{"state":'
    '"inc":87136372517582989555478159403783844777},"has_uint32":0,"uinteger":0},"started":true,'
    '"shape":[1,1,true],"report":{"regime":0,"next_name":1,"names":[[0,0],[1,1],[2,2],[3,3]]},'
    '"units":{"count":"rows":"window":200,"dim":1}},"arrays":{"i1":{"live":[40],'
    '"particle_current":[100],"particle_n_regimes":[100],"particle_slots":[100,5],'
    '"particle_counts":[100,4,4],"particle_start":[100,4],"ledger_identity":[40],'
    '"ledger_told":[40],"clock_first":[7],"clock_candidates":[6],"clock_size":[6],'
    '"clock_position":[6],"clock_observed":[6],"clock_next_id":[1],"clock_vote":[3],'
    '"candidate_row":[6,15],"candidate_branch":[6,15],"candidate_outliers":[6,15],'
    '"work_taken":[6,15]},"f8":{"particle_log_weight":[100],"particle_log_beta":[100,5],'
    '"particle_alpha":[100],"particle_gamma":[100],"clock_ess":[6],"clock_outliers":[2],'
    '"clock_batch_outliers":[2],"candidate_score":[6,15],"candidate_weight":[6,15],'
    '"row_mean":[40,1,1],"row_root":[40,1,1],"row_factor":[40,1,1],"row_dof":[40],'
    '"work_u":[6,15,12,1],"work_shrink":[6,15,12],"work_gain":[6,15,12,1],'
    '"work_factor":[6,15,1,1],"work_dof":[6,15],"recent_y":[24,1],"units/centre":[1],'
    '"units/scale":[1],"units/buffer":[200,1]},"i2":{"ledger_first_seen":[40],'
    '"ledger_last_seen":[40],"ledger_visits":[40],"ledger_batches":[40],"clock_commits":[6],'
    '"clock_time":[1]},"f4":{"recent_design":[24,1,1],"past":[0,1]},"b1":{"units/alive":[1]}},'
    '"large":[]}'
)
_LATER = (
    '"format":3,"time":"next_label":4,"reported":0,"n_known":4,"n_remembered":4,"changed":"since":'
    '"last_reported":"reported_ever":[0,1,2,3],"i1":{"particles.current":[100],'
    '"particles.n_regimes":[100],"particles.slots":[100,5],"particles.counts":[100,4,4],'
    '"particles.start":[100,4],"pool.label":[40],"pool.reported":[40],"pool.batches":[40],'
    '"clock.size":[6],"clock.position":[6],"clock.observed":[6],"candidates.outliers":[60],'
    '"work.taken":[60],"i2":{"pool.first_seen":[40],"pool.last_seen":[40],"pool.visits":[40],'
    '"clock.commits":[6]},"f8":{"particles.log_weight":[100],"particles.log_beta":[100,5],'
    '"particles.alpha":[100],"particles.gamma":[100],"clock.ess":[6],"clock.outliers":[2],'
    '"clock.batch_outliers":[2],"row.mean":[40,1,1],"row.root":[40,1,1],"row.factor":[40,1,1],'
    '"row.dof":[40],"work.work_factor":[60,1,1],"work.work_dof":[60],"recent_y":[24,1]},'
    '"sparse f8":{"work.u":[60,60,12,1],"work.shrink":[60,60,12],"work.gain":[60,60,12,1],'
    '"distinct f8":{"candidates.score":[30,60],"recent_design":[1,24,1,1]'
)
WORDS = {2: (_PLAIN + _REGIMES).encode(), 3: (_PLAIN + _REGIMES + _LATER).encode()}
